"""flash_attn.bert_padding: conversion between padded and packed sequences."""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import Tensor

from torchdevice.packages.counting import counted

_MODULE = "flash_attn.bert_padding"


@counted(f"{_MODULE}.index_first_axis", "index_select")
def index_first_axis(input: Tensor, indices: Tensor) -> Tensor:
    """Selects entries along the first axis."""
    return input.index_select(0, indices.to(input.device))


@counted(f"{_MODULE}.index_put_first_axis", "index_copy")
def index_put_first_axis(values: Tensor, indices: Tensor, first_axis_dim: int) -> Tensor:
    """Writes entries to their indices along a first axis of the given size; other entries are zero."""
    empty = values.new_zeros(first_axis_dim, *values.shape[1:])
    return empty.index_copy(0, indices.to(values.device), values)


@counted(f"{_MODULE}.index_first_axis_residual", "index_select")
def index_first_axis_residual(input: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
    """The selected entries along the first axis, and the whole input."""
    return input.index_select(0, indices.to(input.device)), input.detach()


@counted(f"{_MODULE}.unpad_input", "nonzero and index_select")
def unpad_input(
    hidden_states: Tensor, attention_mask: Tensor, unused_mask: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor, int, Tensor]:
    """The tokens of the mask, their indices, the start of each sequence, the longest length, the number of used tokens.

    Tokens of `unused_mask` are kept, and do not count as used.
    """
    kept = attention_mask if unused_mask is None else attention_mask + unused_mask
    lengths = kept.sum(dim=-1, dtype=torch.int32)
    used = attention_mask.sum(dim=-1, dtype=torch.int32)
    indices = kept.flatten().nonzero().flatten()
    starts = torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
    longest = int(lengths.max()) if len(lengths) else 0
    return hidden_states.flatten(0, 1).index_select(0, indices), indices, starts, longest, used


@counted(f"{_MODULE}.unpad_input_for_concatenated_sequences", "nonzero and index_select")
def unpad_input_for_concatenated_sequences(
    hidden_states: Tensor, attention_mask_in_length: Tensor
) -> tuple[Tensor, Tensor, Tensor, int]:
    """`unpad_input` for rows of several sequences. The mask has the length of each sequence, then zeros."""
    lengths = attention_mask_in_length[attention_mask_in_length != 0]
    places = torch.arange(attention_mask_in_length.shape[1], device=attention_mask_in_length.device)
    indices = (places < attention_mask_in_length.sum(dim=1, keepdim=True)).flatten().nonzero().flatten()
    starts = torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
    longest = int(lengths.max()) if len(lengths) else 0
    return hidden_states.flatten(0, 1).index_select(0, indices), indices, starts, longest


def rearrange(tensor: Any, pattern: str, **sizes: Any) -> Any:
    """The function of einops, which programs import from this module."""
    return importlib.import_module("einops").rearrange(tensor, pattern, **sizes)


@counted(f"{_MODULE}.pad_input", "index_copy")
def pad_input(hidden_states: Tensor, indices: Tensor, batch: int, seqlen: int) -> Tensor:
    """Writes packed tokens to their indices; other entries are zero."""
    empty = hidden_states.new_zeros(batch * seqlen, *hidden_states.shape[1:])
    return empty.index_copy(0, indices.to(hidden_states.device), hidden_states).unflatten(0, (batch, seqlen))
