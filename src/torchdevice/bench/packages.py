"""Attention by the stand-ins for CUDA-only packages, relative to a direct call of torch's own fused attention.

Forward and backward are measured in one process, in turns. If the device has memory statistics, the peaks are compared
too.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from itertools import accumulate

import torch
from torch import Tensor
from torch.nn import functional

from torchdevice.bench.runner import AGAIN, Figure, emit, interleaved
from torchdevice.packages import flash_attn, xformers
from torchdevice.packages.xformers_masks import LowerTriangularMask

LIMIT, MEMORY = 1.05, 1.10
CALLS = 5
Attention = Callable[[Tensor, Tensor, Tensor], Tensor]
# Batch, length, heads, heads of keys and values, width.
SHAPES = {"cuda": (8, 2048, 16, 16, 64), "cpu": (2, 512, 8, 8, 64)}


def fused(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """torch's own attention, for tensors of (batch, length, heads, width)."""
    q, k, v = (each.transpose(1, 2) for each in (q, k, v))
    grouped = q.shape[1] != k.shape[1]
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=grouped).transpose(1, 2)


def by_flash_attn(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """flash_attn_func."""
    out: Tensor = flash_attn.flash_attn_func(q, k, v, causal=True)
    return out


def by_xformers(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """memory_efficient_attention with a lower triangle."""
    out: Tensor = xformers.memory_efficient_attention(q, k, v, attn_bias=LowerTriangularMask())
    return out


def packed(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """flash_attn_varlen_func, with sequences of half, a quarter, an eighth … of the length."""
    length = q.shape[1]
    sizes = [length >> n for n in range(1, 5)]
    sizes.append(length - sum(sizes))
    starts = torch.tensor([0, *accumulate(sizes * q.shape[0])], dtype=torch.int32, device=q.device)
    most = max(sizes)
    out: Tensor = flash_attn.flash_attn_varlen_func(
        q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), starts, starts, most, most, causal=True
    )
    return out.view_as(q)


def cases(kind: str) -> dict[str, tuple[Attention, tuple[int, ...]]]:
    batch, length, heads, _, width = shape = SHAPES.get(kind, SHAPES["cpu"])
    grouped = (batch, length, heads, heads // 4, width)
    return {
        "flash_attn_func": (by_flash_attn, shape),
        "flash_attn_func, grouped queries": (by_flash_attn, grouped),
        "xformers.ops.memory_efficient_attention": (by_xformers, shape),
        "flash_attn_varlen_func, five lengths": (packed, shape),
    }


def step(attention: Attention, inputs: list[Tensor]) -> None:
    for each in inputs:
        each.grad = None
    attention(*inputs).sum().backward()


def timed(attention: Attention, inputs: list[Tensor], wait: Callable[[], None]) -> Callable[[], float]:
    def run() -> float:
        wait()
        start = time.perf_counter()
        for _ in range(CALLS):
            step(attention, inputs)
        wait()
        return time.perf_counter() - start

    return run


def peak(attention: Attention, inputs: list[Tensor]) -> int:
    """The bytes that a step adds to the peak."""
    torch.accelerator.synchronize()
    before = torch.accelerator.memory_allocated()
    torch.accelerator.reset_peak_memory_stats()
    step(attention, inputs)
    return torch.accelerator.max_memory_allocated() - before


def main() -> None:
    """Rows on stdout."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    rounds = 6 if parser.parse_args().quick else 25
    found = torch.accelerator.current_accelerator(check_available=True)
    kind = "cpu" if found is None else found.type
    dtype = torch.float32 if found is None else torch.bfloat16

    def wait() -> None:
        if found is not None:
            torch.accelerator.synchronize()

    for name, (attention, (batch, length, heads, of_keys, width)) in cases(kind).items():
        torch.manual_seed(0)
        inputs = [
            torch.randn(batch, length, number, width, device=kind, dtype=dtype, requires_grad=True)
            for number in (heads, of_keys, of_keys)
        ]
        for each in (attention, fused):
            step(each, inputs)
        variants = {"plain": timed(fused, inputs, wait), name: timed(attention, inputs, wait)}
        variants[AGAIN] = timed(fused, inputs, wait)
        shape = f"{batch}×{length}×{heads}/{of_keys}×{width} {str(dtype).removeprefix('torch.')}"
        whole = attention is not packed  # five lengths need less computation
        ratios = interleaved(variants, "plain", rounds)
        emit(
            [
                Figure(f"{name} on {kind}", ratios[name][0], "×", LIMIT if whole else None, ratios[name][1], shape),
                Figure(f"torch's own beside {name}, {AGAIN}", ratios[AGAIN][0], spread=ratios[AGAIN][1]),
            ]
        )
        if found is not None:
            peaks = [peak(each, inputs) for each in (attention, fused)]
            note = f"{peaks[1] / 2**20:,.0f} MiB for torch's own"
            emit([Figure(f"{name}: peak memory", peaks[0] / peaks[1], limit=MEMORY if whole else None, note=note)])


if __name__ == "__main__":
    main()
