"""Training on a virtual device gives the CPU's losses. Each body runs in its own process; see harness.py."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.virtual.harness import on

STEPS = 6


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.rnn = kind(8, 16, num_layers=2, batch_first=True)
        self.head = nn.Linear(16, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.rnn(x)[0][:, -1])


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.head = nn.Linear(16, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.layer(x)
        return self.head(nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)[:, -1])


MODELS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1)), (16, 8)),
    "cnn": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(128, 1),
        ),
        (4, 3, 8, 8),
    ),
    "conv3d": (lambda: nn.Sequential(nn.Conv3d(2, 4, 3), nn.GELU(), nn.Flatten(), nn.Linear(256, 1)), (2, 2, 6, 6, 6)),
    "lstm": (lambda: Recurrent(nn.LSTM), (4, 5, 8)),
    "gru": (lambda: Recurrent(nn.GRU), (4, 5, 8)),
    "transformer": (Attention, (4, 6, 16)),
}
OPTIMIZERS = {
    "adam_foreach": lambda p: torch.optim.Adam(p, 1e-2, foreach=True),
    "adam_fused": lambda p: torch.optim.Adam(p, 1e-2, fused=True),
    "sgd": lambda p: torch.optim.SGD(p, 1e-2, momentum=0.9),
}


def losses(device: str, model: str, optimizer: str, backend: str | None = None) -> list[float]:
    make, shape = MODELS[model]
    torch.manual_seed(0)
    net = make()
    data, target = torch.randn(shape), torch.randn(shape[0], 1)
    net, data, target = net.to(device), data.to(device), target.to(device)
    step = torch.compile(net, backend=backend) if backend else net
    optim = OPTIMIZERS[optimizer](net.parameters())
    torch.manual_seed(1)
    found = []
    for _ in range(STEPS):
        loss = nn.functional.mse_loss(step(data), target)
        optim.zero_grad()
        loss.backward()
        assert all(p.grad.device.type == torch.device(device).type for p in net.parameters())
        optim.step()
        found.append(loss.item())
    return found


def assert_like_cpu(device: str, *arguments: str) -> None:
    expected, actual = losses("cpu", *arguments), losses(device, *arguments)
    assert expected == pytest.approx(actual, rel=2e-4, abs=1e-5), arguments


def every_model(device: str) -> None:
    for model in MODELS:
        assert_like_cpu(device, model, "adam_foreach")
    for optimizer in OPTIMIZERS:
        assert_like_cpu(device, "mlp", optimizer)


@on("cuda", only_cpu="an accelerator draws other random numbers")
def test_cuda_losses_are_the_cpus() -> None:
    every_model("cuda")


@on("mps", only_cpu="an accelerator draws other random numbers")
def test_mps_losses_are_the_cpus() -> None:
    every_model("mps")


@on("xpu", only_cpu="an accelerator draws other random numbers")
def test_xpu_losses_are_the_cpus() -> None:
    every_model("xpu")


@on("cuda")
def test_compiled_losses_are_the_cpus() -> None:
    for model in ("mlp", "cnn", "transformer"):
        assert_like_cpu("cuda", model, "adam_foreach", "aot_eager")


@on("cuda")
def test_inductor_runs_without_triton() -> None:
    assert losses("cuda", "mlp", "sgd", "inductor") == pytest.approx(losses("cpu", "mlp", "sgd"), rel=2e-4)


def mixed_precision(device: str) -> None:
    for dtype in (torch.float16, torch.bfloat16):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(8, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 4)).to(device)
        optim = torch.optim.AdamW(net.parameters(), 1e-2)
        scaler = torch.amp.GradScaler(device, enabled=dtype == torch.float16)
        data, target = torch.randn(16, 8, device=device), torch.randint(4, (16,), device=device)
        found = []
        for _ in range(STEPS * 3):
            with torch.autocast(device, dtype=dtype):
                out = net(data)
                loss = nn.functional.cross_entropy(out, target)
            assert out.dtype == dtype
            scaler.scale(loss).backward()
            scaler.step(optim)
            scaler.update()
            optim.zero_grad()
            found.append(loss.item())
        assert found[-1] < found[0] * 0.8


@on("cuda")
def test_mixed_precision_on_cuda() -> None:
    mixed_precision("cuda")


@on("mps")
def test_mixed_precision_on_mps() -> None:
    mixed_precision("mps")


@on("cuda")
def test_rms_norm_trains_as_on_the_cpu() -> None:
    """In a build for CUDA torch calls an operator for its gradient that only GPUs have."""
    grown = {}
    for device in ("cpu", "cuda"):
        torch.manual_seed(0)
        norm, x = nn.RMSNorm(8), torch.randn(3, 8)
        norm, x = norm.to(device), x.to(device).requires_grad_()
        norm(x).square().sum().backward()
        grown[device] = [x.grad.cpu(), norm.weight.grad.cpu()]
    torch.testing.assert_close(grown["cuda"], grown["cpu"])
