"""What a device computes, for comparison with another: `python -m tests.accelerated.backed_programs mps@cuda FILE`."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - everybody calls it so
from torch import nn

import torchdevice.virtual

Found = list[torch.Tensor]


def _random(device: str) -> Found:
    chances = torch.full((64,), 0.3, device=device)
    return [
        torch.rand(64, device=device),
        torch.randn(64, device=device, dtype=torch.bfloat16),
        torch.randint(0, 99, (64,), device=device),
        torch.randperm(64, device=device),
        torch.bernoulli(chances),
        torch.poisson(chances),
        torch.multinomial(chances, 4),
        F.dropout(torch.ones(64, device=device), 0.5),
        nn.init.normal_(torch.empty(64, device=device)),
    ]


def _generator(device: str) -> Found:
    generator = torch.Generator(device).manual_seed(3)
    first = torch.randn(8, generator=generator, device=device)
    state = generator.get_state()
    again = [torch.randn(8, generator=generator, device=device)]
    generator.set_state(state)
    return [first, *again, torch.randn(8, generator=generator, device=device)]


def _trained(model: nn.Module, device: str, *inputs: torch.Tensor) -> Found:
    model = model.to(device)
    x, *others = (value.to(device) for value in inputs)
    x.requires_grad_()
    result = model(x, *others)
    result = result[0] if isinstance(result, tuple) else result
    (result.float() ** 2).mean().backward()
    return [result, x.grad, *(parameter.grad for parameter in model.parameters())]  # type: ignore[list-item]


def _recurrent(device: str) -> Found:
    found = []
    for model in (nn.LSTM(6, 5, 2, bidirectional=True), nn.LSTM(6, 5, proj_size=3), nn.GRU(6, 5, batch_first=True)):
        found += _trained(model, device, torch.randn(7, 3, 6))
    for plain in (nn.RNN(6, 5, bias=False), nn.RNN(6, 5, nonlinearity="relu")):
        found += _trained(plain, device, torch.randn(7, 3, 6))
    packed = nn.utils.rnn.pack_sequence([torch.randn(n, 6) for n in (5, 3, 2)]).to(device)
    model = nn.LSTM(6, 5).to(device)
    model(packed)[0].data.sum().backward()
    found += [parameter.grad for parameter in model.parameters()]  # type: ignore[misc]
    with torch.no_grad():
        found.append(nn.GRU(6, 5).to(device).eval()(torch.randn(7, 3, 6).to(device))[0])
    return found


def _recurrent_with_dropout(device: str) -> Found:
    return _trained(nn.LSTM(6, 5, 3, dropout=0.4), device, torch.randn(7, 3, 6))


def _convolutions(device: str) -> Found:
    found = []
    image, volume = torch.randn(2, 8, 12, 12), torch.randn(2, 2, 6, 6, 6)
    for model in (nn.Conv2d(8, 8, 3, dilation=2), nn.Conv2d(8, 8, 3, groups=8), nn.ConvTranspose2d(8, 4, 3, 2)):
        found += _trained(model, device, image)
        found += _trained(model.bfloat16(), device, image.bfloat16())
    found += _trained(nn.Conv2d(8, 8, 3).to(memory_format=torch.channels_last), device, image)
    return found + _trained(nn.Conv3d(2, 3, 3, dilation=2), device, volume)


def _norms(device: str) -> Found:
    image = torch.randn(4, 6, 5, 5)
    models = (nn.BatchNorm2d(6), nn.GroupNorm(2, 6), nn.LayerNorm(5), nn.InstanceNorm2d(6), nn.RMSNorm(5))
    return [value for model in models for value in _trained(model, device, image)]


def _attention(device: str) -> Found:
    found = []
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        for size in (32, 20):
            q, k, v = (torch.randn(2, 4, 14, size).to(device, dtype).requires_grad_() for _ in range(3))
            mask = torch.ones(14, 14, dtype=torch.bool).tril().to(device)
            bias = torch.randn(14, 14).to(device, dtype)
            for options in ({"is_causal": True}, {"attn_mask": mask}, {"attn_mask": bias}, {"scale": 0.1}):
                result = F.scaled_dot_product_attention(q, k, v, **options)  # type: ignore[arg-type]
                found += [result, *torch.autograd.grad(result.sum(), (q, k, v))]
            result = F.scaled_dot_product_attention(q, k, v, attn_mask=bias.requires_grad_())
            found += [result, *torch.autograd.grad(result.sum(), (q, k, v, bias))]
    return found


def _optimizers(device: str) -> Found:
    found: Found = []
    for options in ({"foreach": True}, {"foreach": False}, {"fused": True}):
        torch.manual_seed(0)
        model = nn.Sequential(*(nn.Linear(9, 9) for _ in range(12))).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), **options)  # type: ignore[arg-type]
        x = torch.randn(3, 9).to(device)
        for _ in range(3):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        found += list(model.parameters())
    return found


def _others(device: str) -> Found:
    a, indices = torch.randn(6, 6).to(device), torch.tensor([[0, 1], [1, 0]], device=device)
    sparse = torch.sparse_coo_tensor(indices, torch.ones(2, device=device), (6, 6))
    with torch.autocast(device, torch.bfloat16):
        product = a @ a
    return [
        torch.linalg.inv(a),
        torch.linalg.svdvals(a),
        (sparse @ a),
        sparse.to_dense(),
        product,
        torch.fft.fft(a).real,
    ]


# Name → (program, whether the results must be equal bit for bit).
PROGRAMS: dict[str, tuple[Callable[[str], Found], bool]] = {
    "random": (_random, True),
    "generator": (_generator, True),
    "recurrent": (_recurrent, False),
    "recurrent with dropout": (_recurrent_with_dropout, False),
    "convolutions": (_convolutions, False),
    "norms": (_norms, False),
    "attention": (_attention, False),
    "optimizers": (_optimizers, False),
    "others": (_others, False),
}


def main() -> None:
    place, file = sys.argv[1:3]
    device, _, accelerator = place.partition("@")
    if accelerator:
        torchdevice.virtual.install(device, on=accelerator)
    warnings.simplefilter("ignore")
    found: dict[str, Any] = {}
    for name, (program, _) in PROGRAMS.items():
        torch.manual_seed(0)
        values = program(device)
        assert all(value.device.type == device for value in values), name
        found[name] = [value.detach().cpu() for value in values]
    if accelerator:
        assert not torchdevice.virtual.on_host(), torchdevice.virtual.on_host()
    torch.save(found, file)


if __name__ == "__main__":
    main()
