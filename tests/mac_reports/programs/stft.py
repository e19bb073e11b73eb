import torch

wave, window = torch.sin(torch.linspace(0, 90, 2048)), torch.hann_window(128)
there = torch.stft(wave.to("mps"), 128, 64, window=window.to("mps"), return_complex=True)
here = torch.stft(wave, 128, 64, window=window, return_complex=True)
torch.testing.assert_close(there.abs().cpu(), here.abs(), rtol=1e-4, atol=1e-4)
