import torch

torch.manual_seed(0)
layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).bfloat16().eval()
tokens = torch.linspace(-1, 1, 24).view(1, 3, 8).bfloat16()
expected = layer(tokens)
torch.testing.assert_close(layer.to("mps")(tokens.to("mps")).cpu(), expected, rtol=5e-2, atol=5e-2)
