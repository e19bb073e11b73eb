import torch

wave = torch.sin(torch.linspace(0, 40, 256))
torch.testing.assert_close(torch.fft.rfft(wave.to("mps")).abs().cpu(), torch.fft.rfft(wave).abs())
