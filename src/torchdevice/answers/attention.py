"""Attention over jagged nested tensors where torch has no kernel of its own for them.

CUDA has fused kernels for it. On other devices torch converts to strided nested tensors, which only some devices can
hold, and refuses causal attention. Here each sequence is one call.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import nn

from torchdevice._torch import jagged


def per_sequence(attend: Callable[..., torch.Tensor], devices: Collection[str]) -> Callable[..., torch.Tensor]:
    """Wraps torch's attention of jagged tensors, for tensors on these device types."""

    def attention(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> torch.Tensor:
        given = (query, key, value)
        settings: dict[str, Any] = {
            "dropout_p": dropout_p,
            "is_causal": is_causal,
            "scale": scale,
            "enable_gqa": enable_gqa,
        }
        if attn_mask is not None or query.device.type not in devices or not _alike(given):
            return attend(*given, attn_mask, **settings)
        parts = zip(*map(_sequences, given), strict=True)
        results = [nn.functional.scaled_dot_product_attention(*part, **settings).movedim(-2, 0) for part in parts]
        made = jagged.jagged_like(query, torch.cat(results))
        return made.transpose(1, 2) if jagged.ragged_dimension(query) == 2 else made

    return attention


def _alike(given: tuple[torch.Tensor, ...]) -> bool:
    """Whether these are sequences of vectors, or of several heads. torch refuses the rest, or needs no help."""
    return (
        all(map(jagged.is_jagged, given))
        and len({(each.dtype, each.device, each.dim(), each.size(0)) for each in given}) == 1
        and all(jagged.ragged_dimension(each) == each.dim() - 2 for each in given)
        and given[0].dim() in (3, 4)
    )


def _sequences(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The parts of a jagged tensor."""
    return tensor.values().split(tensor.offsets().diff().tolist(), dim=-2)
