"""xformers.ops.fmha.attn_bias: masks as objects. Each defines the visible keys as options of `attention`.

`attention` aligns queries and keys at their ends: query `i` has the position of key `i + keys - queries`. The plain
causal masks of xformers align them at their beginning, so the window is shifted by the difference.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from torchdevice.packages.attention import Block, Options


class AttentionBias:
    """The base of all masks."""

    def options(self, asked: Options, queries: int, keys: int) -> Options:
        """The options with this mask."""
        raise NotImplementedError

    def materialize(self, shape: Sequence[int], dtype: torch.dtype = torch.float32, device: Any = "cpu") -> Tensor:
        """The mask as a tensor: 0 for visible keys, -inf for others."""
        queries, keys = shape[-2:]
        asked = self.options(Options(), queries, keys)
        mask = torch.zeros(tuple(shape), dtype=dtype, device=device)
        if asked.bias is not None:
            mask = mask + asked.bias.to(mask)
        seen = Block(0, queries, 0, keys, keys - queries).visible(asked, mask.device)
        return mask if seen is None else mask.masked_fill(~seen, -math.inf)


class LowerTriangularMask(AttentionBias):
    """Causal, counted from the first query and the first key."""

    def __init__(self, *tensor_args: Any, **tensor_kwargs: Any) -> None:
        pass

    def options(self, asked: Options, queries: int, keys: int) -> Options:
        return replace(asked, right=queries - keys)

    def add_bias(self, bias: Tensor) -> LowerTriangularMaskWithTensorBias:
        """The same with a tensor added to the scores."""
        return LowerTriangularMaskWithTensorBias(bias)


class LowerTriangularMaskWithTensorBias(LowerTriangularMask):
    """The same with a tensor added to the scores."""

    def __init__(self, bias: Tensor) -> None:
        self._bias = bias

    def options(self, asked: Options, queries: int, keys: int) -> Options:
        return replace(super().options(asked, queries, keys), bias=self._bias)


class LowerTriangularFromBottomRightMask(AttentionBias):
    """Causal, counted from the last query and the last key."""

    def options(self, asked: Options, queries: int, keys: int) -> Options:
        return replace(asked, right=0)

    def make_local_attention(self, window_size: int) -> LowerTriangularFromBottomRightLocalAttentionMask:
        """The same with a window."""
        return LowerTriangularFromBottomRightLocalAttentionMask(window_size)


@dataclass
class LowerTriangularFromBottomRightLocalAttentionMask(LowerTriangularFromBottomRightMask):
    """The same; a query sees itself and the `_window_size - 1` keys before."""

    _window_size: int

    def options(self, asked: Options, queries: int, keys: int) -> Options:
        return replace(asked, right=0, left=self._window_size - 1)


@dataclass
class LocalAttentionFromBottomRightMask(AttentionBias):
    """A window on both sides, counted from the last query and the last key."""

    window_left: int
    window_right: int

    def options(self, asked: Options, queries: int, keys: int) -> Options:
        return replace(asked, left=self.window_left, right=self.window_right)


@dataclass
class SequenceInfo:
    """The start positions of concatenated sequences."""

    seqstart: Tensor
    max_seqlen: int
    min_seqlen: int
    seqstart_py: list[int]

    @classmethod
    def from_seqlens(cls, seqlens: Sequence[int], *, device: Any = None) -> SequenceInfo:
        """From their lengths."""
        starts = [0]
        for length in seqlens:
            starts.append(starts[-1] + length)
        tensor = torch.tensor(starts, dtype=torch.int32, device=device or "cpu")
        return cls(tensor, max(seqlens, default=0), min(seqlens, default=0), starts)

    def intervals(self) -> Iterator[tuple[int, int]]:
        """The start and the end of each sequence."""
        yield from zip(self.seqstart_py, self.seqstart_py[1:], strict=False)


@dataclass
class PaddedSequenceInfo(SequenceInfo):
    """The start positions of sequences that are padded to the same length."""

    seqlen: Tensor
    seqlen_py: Sequence[int]
    padding: int

    @classmethod
    def from_seqlens_padded(cls, seqlens: Sequence[int], padding: int, *, device: Any = None) -> PaddedSequenceInfo:
        """From their lengths and the padded length."""
        starts = [*range(0, len(seqlens) * padding + 1, padding)]
        tensor = torch.tensor(starts, dtype=torch.int32, device=device or "cpu")
        lengths = torch.tensor(seqlens, dtype=torch.int32, device=device or "cpu")
        return cls(tensor, max(seqlens, default=0), min(seqlens, default=0), starts, lengths, [*seqlens], padding)

    def intervals(self) -> Iterator[tuple[int, int]]:
        for start, length in zip(self.seqstart_py, self.seqlen_py, strict=False):
            yield start, start + length


@dataclass
class BlockDiagonalMask(AttentionBias):
    """Concatenated sequences in a batch of one. Each sequence attends to its own keys."""

    q_seqinfo: SequenceInfo
    k_seqinfo: SequenceInfo
    _batch_sizes: Sequence[int] | None = None

    @classmethod
    def from_seqlens(
        cls, q_seqlen: Sequence[int], kv_seqlen: Sequence[int] | None = None, *, device: Any = None
    ) -> Any:
        """From the lengths of the queries and, if they differ, of the keys."""
        queries = SequenceInfo.from_seqlens(q_seqlen, device=device)
        keys = queries if kv_seqlen in (None, q_seqlen) else SequenceInfo.from_seqlens(kv_seqlen or (), device=device)
        return cls(queries, keys)

    @classmethod
    def from_tensor_list(cls, tensors: Sequence[Tensor]) -> tuple[Any, Tensor]:
        """A mask for tensors (batch, length, …), and their concatenation."""
        sizes = [tensor.shape[0] for tensor in tensors]
        lengths = [tensor.shape[1] for tensor in tensors for _ in range(tensor.shape[0])]
        mask = cls.from_seqlens(lengths)
        mask._batch_sizes = sizes
        return mask, torch.cat([tensor.reshape(1, -1, *tensor.shape[2:]) for tensor in tensors], dim=1)

    @classmethod
    def from_tensor_lists_qkv(
        cls, tensors_q: Sequence[Tensor], tensors_k: Sequence[Tensor], tensors_v: Sequence[Tensor] | None = None
    ) -> tuple[Any, Tensor, Tensor, Tensor | None]:
        """A mask for lists of queries, keys and values, and their concatenations."""
        lengths = [
            [each.shape[1] for each in tensors for _ in range(each.shape[0])] for tensors in (tensors_q, tensors_k)
        ]
        mask = cls.from_seqlens(*lengths)
        mask._batch_sizes = [tensor.shape[0] for tensor in tensors_q]
        q, k, v = (
            None if tensors is None else torch.cat([each.reshape(1, -1, *each.shape[2:]) for each in tensors], dim=1)
            for tensors in (tensors_q, tensors_k, tensors_v)
        )
        return mask, q, k, v

    def split(self, tensor: Tensor) -> list[Tensor]:
        """Splits a result into the sequences that `from_tensor_list` received."""
        return self.split_queries(tensor)

    def split_queries(self, tensor: Tensor) -> list[Tensor]:
        """The same."""
        return self._split(self.q_seqinfo, tensor)

    def split_kv(self, tensor: Tensor) -> list[Tensor]:
        """The same for keys and values."""
        return self._split(self.k_seqinfo, tensor)

    def _split(self, sequences: SequenceInfo, tensor: Tensor) -> list[Tensor]:
        parts = [tensor[:, start:end] for start, end in sequences.intervals()]
        if self._batch_sizes is None:
            return parts
        joined, at = [], 0
        for size in self._batch_sizes:
            joined.append(torch.cat(parts[at : at + size]))
            at += size
        return joined

    def blocks(self) -> Iterator[tuple[slice, slice]]:
        """The queries and the keys of each sequence."""
        for queries, keys in zip(self.q_seqinfo.intervals(), self.k_seqinfo.intervals(), strict=True):
            yield slice(*queries), slice(*keys)

    def inside(self, asked: Options, queries: int, keys: int) -> Options:
        """The options with the mask within a sequence."""
        return asked

    def materialize(self, shape: Sequence[int], dtype: torch.dtype = torch.float32, device: Any = "cpu") -> Tensor:
        mask = torch.full(tuple(shape), -math.inf, dtype=dtype, device=device)
        for queries, keys in self.blocks():
            size, width = queries.stop - queries.start, keys.stop - keys.start
            asked = self.inside(Options(), size, width)
            seen = Block(0, size, 0, width, width - size).visible(asked, mask.device)
            one = torch.zeros(size, width, dtype=dtype, device=device)
            mask[..., queries, keys] = one if seen is None else one.masked_fill(~seen, -math.inf)
        return mask

    def make_causal(self) -> BlockDiagonalCausalMask:
        """The same, causal within each."""
        return BlockDiagonalCausalMask(self.q_seqinfo, self.k_seqinfo, self._batch_sizes)

    def make_causal_from_bottomright(self) -> BlockDiagonalCausalFromBottomRightMask:
        """The same, counted from the end of each."""
        return BlockDiagonalCausalFromBottomRightMask(self.q_seqinfo, self.k_seqinfo, self._batch_sizes)

    def make_local_attention(self, window_size: int) -> BlockDiagonalCausalLocalAttentionMask:
        """The same, causal and with a window."""
        return BlockDiagonalCausalLocalAttentionMask(self.q_seqinfo, self.k_seqinfo, self._batch_sizes, window_size)

    def make_local_attention_from_bottomright(
        self, window_size: int
    ) -> BlockDiagonalCausalLocalAttentionFromBottomRightMask:
        """The same, counted from the end of each."""
        return BlockDiagonalCausalLocalAttentionFromBottomRightMask(
            self.q_seqinfo, self.k_seqinfo, self._batch_sizes, window_size
        )


class BlockDiagonalCausalMask(BlockDiagonalMask):
    """Causal within each sequence, counted from its beginning."""

    def inside(self, asked: Options, queries: int, keys: int) -> Options:
        return replace(asked, right=queries - keys)


class BlockDiagonalCausalFromBottomRightMask(BlockDiagonalMask):
    """Causal within each sequence, counted from its end."""

    def inside(self, asked: Options, queries: int, keys: int) -> Options:
        return replace(asked, right=0)


@dataclass
class BlockDiagonalCausalLocalAttentionMask(BlockDiagonalCausalMask):
    """Causal with a window within each sequence, counted from its beginning."""

    _window_size: int = 0

    def inside(self, asked: Options, queries: int, keys: int) -> Options:
        return replace(asked, right=queries - keys, left=self._window_size - 1 + keys - queries)


@dataclass
class BlockDiagonalCausalLocalAttentionFromBottomRightMask(BlockDiagonalCausalFromBottomRightMask):
    """Causal with a window within each sequence, counted from its end."""

    _window_size: int = 0

    def inside(self, asked: Options, queries: int, keys: int) -> Options:
        return replace(asked, right=0, left=self._window_size - 1)


class BlockDiagonalPaddedKeysMask(BlockDiagonalMask):
    """Sequences whose keys are padded to the same length."""

    @classmethod
    def from_seqlens(  # type: ignore[override]
        cls,
        q_seqlen: Sequence[int],
        kv_padding: int,
        kv_seqlen: Sequence[int],
        causal_diagonal: Any = None,
        *,
        device: Any = None,
    ) -> Any:
        """From the lengths and the padded length of the keys."""
        queries = SequenceInfo.from_seqlens(q_seqlen, device=device)
        return cls(queries, PaddedSequenceInfo.from_seqlens_padded(kv_seqlen, kv_padding, device=device))


class BlockDiagonalCausalWithOffsetPaddedKeysMask(BlockDiagonalPaddedKeysMask):
    """Sequences with padded keys, causal within each sequence and aligned at its end, as for a step over a cache."""

    def inside(self, asked: Options, queries: int, keys: int) -> Options:
        return replace(asked, right=0)
