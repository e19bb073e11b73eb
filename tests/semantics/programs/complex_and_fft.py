"""Complex numbers and Fourier transforms."""

import torch


def _z(d):
    return torch.tensor([1 + 2j, -0.5j, 3.0], dtype=torch.complex64, device=d)


def _wave(d, n=8):
    return torch.sin(torch.arange(n, device=d, dtype=torch.float32))


ROWS = {
    "fft": lambda d: torch.fft.fft(_wave(d)).tolist(),
    "ifft": lambda d: torch.fft.ifft(_z(d)).tolist(),
    "rfft": lambda d: torch.fft.rfft(_wave(d), norm="ortho").tolist(),
    "irfft": lambda d: torch.fft.irfft(torch.fft.rfft(_wave(d)), n=8).tolist(),
    "fft2": lambda d: torch.fft.fft2(_wave(d).view(2, 4)).tolist(),
    "rfftn": lambda d: torch.fft.rfftn(_wave(d).view(2, 2, 2)).tolist(),
    "hfft": lambda d: torch.fft.hfft(_z(d)).tolist(),
    "fftfreq": lambda d: [torch.fft.fftfreq(5, device=d).tolist(), torch.fft.rfftfreq(5, device=d).tolist()],
    "fftshift": lambda d: torch.fft.fftshift(torch.arange(5, device=d)).tolist(),
    "abs_angle": lambda d: [_z(d).abs().tolist(), _z(d).angle().tolist()],
    "conjugates": lambda d: [_z(d).conj().tolist(), _z(d).conj().is_conj(), _z(d).conj().resolve_conj().is_conj()],
    "products": lambda d: [(_z(d) * _z(d)).tolist(), torch.vdot(_z(d), _z(d)).item(), (_z(d) / 2j).tolist()],
    "exponentials": lambda d: [_z(d).exp().tolist(), _z(d).sqrt().tolist()],
    "made_of_parts": lambda d: [
        torch.complex(_wave(d, 2), _wave(d, 2)).tolist(),
        torch.polar(torch.ones(2, device=d), _wave(d, 2)).tolist(),
    ],
    "complex_matmul": lambda d: (_z(d).view(3, 1) @ _z(d).view(1, 3)).tolist(),
    "promotion_of_reals": lambda d: [str((_wave(d, 3) * 1j).dtype), str((_z(d) + _wave(d, 3)).dtype)],
    "sum_mean_prod": lambda d: [_z(d).sum().item(), _z(d).mean().item(), _z(d).prod().item()],
    "hann_window": lambda d: [
        torch.hann_window(4, device=d).tolist(),
        torch.hamming_window(4, device=d).tolist(),
        torch.blackman_window(4, device=d).tolist(),
        torch.bartlett_window(4, device=d).tolist(),
    ],
    "kaiser_window": lambda d: torch.kaiser_window(4, device=d).tolist(),
}


def stft_and_back(d):
    x, window = _wave(d, 32), torch.hann_window(8, device=d)
    spectrum = torch.stft(x, 8, 4, window=window, return_complex=True)
    back = torch.istft(spectrum, 8, 4, window=window, length=32)
    return [list(spectrum.shape), spectrum.abs().sum().item(), torch.allclose(back, x, atol=1e-5)]


def gradient_of_a_spectrum(d):
    x = _wave(d).requires_grad_()
    torch.fft.rfft(x).abs().pow(2).sum().backward()
    return x.grad.tolist()


def gradient_of_a_complex_leaf(d):
    z = _z(d).requires_grad_()
    (z * z.conj()).real.sum().backward()
    return z.grad.tolist()


def convolution_by_spectra(d):
    a, b = _wave(d), torch.ones(8, device=d)
    return torch.fft.irfft(torch.fft.rfft(a) * torch.fft.rfft(b), n=8).tolist()
