"""Packed sequences by CUDA's flash kernel: when it is asked, and that its result is used. It needs CUDA itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from torchdevice._torch import core
from torchdevice.packages import flash_attn

STARTS = torch.tensor([0, 3, 4, 9], dtype=torch.int32)
OTHERS = torch.tensor([0, 2, 8, 9], dtype=torch.int32)
Call = tuple[list[list[int]], list[int], float | None, bool]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """The kernel, by torch's attention of each sequence; what it was asked for."""
    calls: list[Call] = []

    def kernel(
        tensors: Sequence[Tensor], starts: Sequence[Tensor], longest: Sequence[int], scale: float | None, causal: bool
    ) -> Tensor:
        calls.append(([each.tolist() for each in starts], list(longest), scale, causal))
        bounds = [list(zip(each.tolist(), each.tolist()[1:], strict=False)) for each in starts]
        outs = []
        for (first, end), (at, beyond) in zip(*bounds, strict=True):
            parts = (tensors[0][first:end], tensors[1][at:beyond], tensors[2][at:beyond])
            q, k, v = (part.transpose(0, 1).unsqueeze(0) for part in parts)
            out = functional.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale, enable_gqa=True)
            outs.append(out.squeeze(0).transpose(0, 1))
        return torch.cat(outs)

    monkeypatch.setattr(core, "packed_attention", kernel)
    return calls


def tensors() -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randn(9, 4, 8), torch.randn(9, 2, 8), torch.randn(9, 2, 8)


@pytest.mark.parametrize(
    ("keys", "options", "scale"),
    [
        (STARTS, {}, None),
        (STARTS, {"causal": True}, None),
        (OTHERS, {"softmax_scale": 0.3}, 0.3),
    ],
)
def test_one_call_gives_what_a_call_per_sequence_gives(
    keys: Tensor, options: dict[str, Any], scale: float | None, asked: list[Call], monkeypatch: pytest.MonkeyPatch
) -> None:
    q, k, v = tensors()
    got = flash_attn.flash_attn_varlen_func(q, k, v, STARTS, keys, 99, 99, **options)
    lengths = [int(each.diff().max()) for each in (STARTS, keys)]
    assert asked == [([STARTS.tolist(), keys.tolist()], lengths, scale, bool(options.get("causal")))]
    monkeypatch.setattr(core, "packed_attention", lambda *_: None)
    torch.testing.assert_close(got, flash_attn.flash_attn_varlen_func(q, k, v, STARTS, keys, 99, 99, **options))


@pytest.mark.parametrize(
    ("keys", "options"),
    [
        (OTHERS, {"causal": True}),  # aligned at the ends
        (STARTS, {"window_size": (2, 0)}),
        (STARTS, {"softcap": 2.0}),
        (STARTS, {"alibi_slopes": torch.ones(4)}),
        (STARTS, {"dropout_p": 0.5}),
        (STARTS, {"return_attn_probs": True}),
    ],
)
def test_the_kernel_is_not_asked_for_what_it_does_otherwise(
    keys: Tensor, options: dict[str, Any], asked: list[Call]
) -> None:
    flash_attn.flash_attn_varlen_func(*tensors(), STARTS, keys, 99, 99, **options)
    assert asked == []


def test_rows_after_the_last_sequence_are_zeros(asked: list[Call]) -> None:
    short = torch.tensor([0, 3, 7], dtype=torch.int32)
    out = flash_attn.flash_attn_varlen_func(*tensors(), short, short, 4, 4)
    assert asked == []
    assert out[7:].abs().sum() == 0


def test_without_cuda_there_is_no_such_kernel() -> None:
    assert core.packed_attention(tensors(), (STARTS, STARTS), (5, 5), None, False) is None
