import torch

module = torch.nn.Module()
module.register_buffer("weight", torch.tensor([[1.0, 2.0], [3.0, 4.0]]).to(torch.float8_e4m3fn))
module.to("mps")
product = torch.ones(1, 2, device="mps") @ module.weight.to(torch.float32)
torch.testing.assert_close(product.cpu(), torch.tensor([[4.0, 6.0]]))
