"""Private names of torch for nested tensors with the layout `torch.jagged`.

Expiry: a public function that makes a jagged tensor like another one, and attention that has kernels for all devices.
"""

from __future__ import annotations

from typing import Any

import torch

# torch calls this function for `scaled_dot_product_attention` of jagged tensors. The module is loaded on demand.
MODULE = "torch.nested._internal.ops"
ATTENTION = "jagged_scaled_dot_product_attention"
DEFINED_LATE = "jagged_torch_function"


def is_jagged(tensor: Any) -> bool:
    """Whether a tensor is nested and has one buffer without holes."""
    return isinstance(tensor, torch.Tensor) and tensor.is_nested and getattr(tensor, "_lengths", tensor) is None


def ragged_dimension(tensor: Any) -> int:
    """The dimension whose size differs per part."""
    return int(tensor._ragged_idx)


def jagged_like(tensor: Any, values: torch.Tensor) -> torch.Tensor:
    """The parts `values`, joined in their first dimension, as a jagged tensor with the same sizes in dimension 1."""
    from torch.nested._internal.nested_tensor import nested_view_from_values_offsets_lengths

    return nested_view_from_values_offsets_lengths(
        values,
        tensor.offsets(),
        None,
        min_seqlen=tensor._maybe_min_seqlen,
        max_seqlen=tensor._maybe_max_seqlen,
    )
