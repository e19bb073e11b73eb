"""What a device refuses against what is predicted, operator by operator, in both directions.

Samples of torch's database run on the device, and every aten operator that they call is recorded with the dtype of its
first tensor and whether it ran. So a disagreement names the row of a table, not a public function.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import torch

from torchdevice._torch import core, dispatcher
from torchdevice._torch.samples import leaves_of
from torchdevice.verify.findings import Check, Differs, Result, Skipped
from torchdevice.verify.operators import database, is_refusal, name_of
from torchdevice.verify.predictions import DEPENDS, REFUSED, RUNS, known_for, lacks_dtype, predict
from torchdevice.verify.samples import copied, has_gradient, on_cpu, outcome, samples_of
from torchdevice.verify.setting import Setting

SAMPLES = 4
# Real devices and our virtual ones name the operator in these words.
_NAMED = re.compile(r"operator '(aten::[\w.]+)'|Could not run '(aten::[\w.]+)'")


class Call(NamedTuple):
    """An operator with the dtype of its first tensor, or with the requested one if the device lacks that."""

    operator: str
    dtype: str


class Calls(core.DispatchMode):
    """Records the operators that get a dense tensor of the device, and the one that it refuses."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self._kind = kind
        self.ran: set[Call] = set()
        self.refused: dict[Call, str] = {}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        leaves = leaves_of((args, kwargs or {}))
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        there = bool(tensors) and tensors[0].device.type == self._kind
        dense = all(tensor.layout == torch.strided and not tensor.is_nested for tensor in tensors)
        requested = [name for leaf in leaves if lacks_dtype(self._kind, name := dtype_name(leaf))]
        given = [dtype_name(tensor.dtype) for tensor in tensors[:1]]
        call = Call(dispatcher.name_of(function), (*requested, *given, "")[0])
        try:
            result = function(*args, **(kwargs or {}))
        except Exception as error:  # judged by its type and words
            if there and dense and is_refusal(error):
                self.refused[call._replace(operator=_inner(str(error)) or call.operator)] = str(error)
            raise
        if there and dense and all(tensor.numel() for tensor in tensors):  # for empty ones no kernel may run
            self.ran.add(call)
        return result


def dtype_name(value: Any) -> str:
    """`float32` for torch.float32; "" for what is not a dtype."""
    return str(value).removeprefix("torch.") if isinstance(value, torch.dtype) else ""


def _inner(message: str) -> str:
    """The operator that a refusal names: a kernel may call another one that the device lacks."""
    found = _NAMED.search(message)
    return (found[1] or found[2]) if found else ""


def checks(setting: Setting) -> Iterator[Check]:
    """Each entry of the database with dtypes that devices often lack."""
    if not known_for(setting.kind):
        raise Skipped(f"torch's lists do not contain the kernels of {setting.kind}, so nothing is predicted")
    for op in database():
        for dtype in dict.fromkeys((torch.float32, setting.half, torch.int64, torch.bool, torch.complex64)):
            if dtype in op.supported_dtypes("cpu"):
                yield Check(name_of(op, dtype), partial(compare, op, dtype, setting.kind))


def compare(op: Any, dtype: torch.dtype, kind: str) -> Result:
    """Run a few samples. Raises Differs with every operator that does not do what is predicted of it."""
    calls = Calls(kind)
    wants_gradient = has_gradient(op, dtype)
    for sample in samples_of(op, dtype, wants_gradient, SAMPLES):
        if on_cpu(op, sample, wants_gradient) is None:
            continue
        try:
            arguments = copied(op, sample, kind)
            with calls:
                outcome(op, arguments, wants_gradient)
        except Exception:  # `calls` has recorded a refusal; `operators` reports other errors
            continue
    found = [*judge(kind, calls.ran, RUNS), *judge(kind, calls.refused, REFUSED)]
    figures = {
        "ran": sorted(map(" ".join, calls.ran)),
        "refused": sorted(map(" ".join, calls.refused)),
        "disagreements": found,
    }
    if found:
        raise Differs("; ".join(map(in_words, found)), figures)
    return Result(f"{len(calls.ran)} operators ran, {len(calls.refused)} were refused, as predicted", figures)


def judge(kind: str, calls: Any, seen: str) -> Iterator[dict[str, str]]:
    """The calls of which something else was predicted."""
    for call in sorted(calls):
        predicted = predict(kind, *call)
        if predicted.what not in (seen, DEPENDS):
            yield {**call._asdict(), "predicted": predicted.what, "reason": predicted.reason, "seen": seen}


def in_words(row: dict[str, str]) -> str:
    """One disagreement."""
    why = f" ({row['reason']})" if row["reason"] else ""
    return f"{row['operator']} of {row['dtype']}: predicted: {row['predicted']}{why}; seen: {row['seen']}"
