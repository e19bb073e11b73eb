import torch

frequencies, positions = torch.tensor([1.0, 0.01], device="mps"), torch.arange(3.0, device="mps")
with torch.autocast(device_type=positions.device.type, enabled=False):
    angles = (frequencies[:, None].float() @ positions[None].float()).transpose(0, 1)
torch.testing.assert_close(angles.cpu(), torch.outer(torch.arange(3.0), torch.tensor([1.0, 0.01])))
