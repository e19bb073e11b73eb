"""Operators that the GPU of a Mac lacks run on the CPU or MLX; results and gradients are copied back.

torchdevice run --virtual mps:real examples/fallback.py                      on a virtual Mac
torchdevice run --virtual mps:real --fallback mlx,cpu examples/fallback.py   MLX if it is installed and faster
"""

import torch

torch.manual_seed(0)
features = torch.randn(64, 8, device="cuda", requires_grad=True)
covariance = features.T @ features / 64
values, vectors = torch.linalg.eigh(covariance)  # MPS has no kernel for it
values[-1].backward()

restored = vectors @ torch.diag(values) @ vectors.T
print("the factors give the matrix:", torch.allclose(restored, covariance, atol=1e-5))
print("results and gradients are on one device:", features.grad.device == vectors.device == features.device)
