"""torch's sample inputs on the device, forward and gradient, against the CPU: float32 and the device's half type."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from torchdevice._torch import core, dispatcher
from torchdevice._torch.samples import map_leaves, operator_database
from torchdevice.fallback.kernels import refusal_of
from torchdevice.verify.findings import Check, Differs, Result, Skipped, in_one_line
from torchdevice.verify.parts import place_in_order
from torchdevice.verify.samples import (
    UNINITIALISED,
    copied,
    differs,
    has_gradient,
    names_a_device,
    on_cpu,
    outcome,
    samples_of,
)
from torchdevice.verify.setting import Setting
from torchdevice.virtual import supported

SAMPLES = 12
# Compiled by CUDA at run time, and no operators of torch's dispatcher.
NOT_PORTABLE = "jiterator"


def database() -> list[Any]:
    """The entries of torch's database, in an order that is random and fixed. Raises Skipped if it cannot be loaded."""
    try:
        entries = operator_database()
    except ImportError as error:
        raise Skipped(
            f"torch's operator database needs a package that is missing: {error}. Hint: pip install expecttest numpy"
        ) from error
    return sorted(
        (op for op in entries if not op.formatted_name.startswith(NOT_PORTABLE)),
        key=lambda op: place_in_order(op.formatted_name),
    )


def name_of(op: Any, dtype: torch.dtype) -> str:
    """The name of a check: the entry of the database and the dtype."""
    return f"{op.formatted_name} {str(dtype).removeprefix('torch.')}"


def checks(setting: Setting) -> Iterator[Check]:
    """Each entry with float32 and then with the half type, if the CPU has it."""
    for op in database():
        for dtype in (torch.float32, setting.half):
            if dtype in op.supported_dtypes("cpu"):
                yield Check(name_of(op, dtype), partial(compare, op, dtype, setting.kind))


def compare(op: Any, dtype: torch.dtype, kind: str) -> Result:
    """All samples that the CPU accepts. A sample that the device refuses is counted; `refusals` judges it."""
    wants_gradient = has_gradient(op, dtype)
    ran, refused, refusal = 0, 0, ""
    for number, sample in enumerate(samples_of(op, dtype, wants_gradient, SAMPLES)):
        with Draws() as draws:
            expected = on_cpu(op, sample, wants_gradient)
        if expected is None:
            continue
        ran += 1
        try:
            actual = outcome(op, copied(op, sample, kind), wants_gradient, sample.output_process_fn_grad)
        except Exception as error:  # any error of a device is a result
            if not is_refusal(error):
                raise Differs(f"sample {number} raised {type(error).__name__}: {in_one_line(str(error))}") from error
            refused, refusal = refused + 1, refusal or in_one_line(str(error))
            continue
        values = not draws.random and has_values(op, dtype)
        text = difference(sample, expected, actual, kind, values)
        if text and dtype is not torch.float32:  # the CPU may be the one that rounds more
            text = difference(sample, in_float32(op, sample, dtype, wants_gradient), actual, kind, values)
        if text:
            raise Differs(f"sample {number}: {text}")
    if not ran:
        raise Skipped("no sample that the CPU accepts")
    if refused == ran:
        raise Skipped(f"the device refuses all {ran} samples: {refusal}")
    figures = {"samples": ran, "refused": refused}
    return Result(f"{ran - refused} samples" + (f", {refused} refused: {refusal}" if refused else ""), figures)


class Draws(core.DispatchMode):
    """Notes whether an operator draws random numbers, which differ from device to device."""

    random = False

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.random = self.random or dispatcher.draws_random_numbers(function)
        return function(*args, **(kwargs or {}))


def has_values(op: Any, dtype: torch.dtype) -> bool:
    """Whether the values of its results are defined. torch's own tests of MPS list where they are not."""
    undefined = supported.mps_lists().get("UNDEFINED_XFAILLIST", {})
    listed = undefined.get(f"{op.name}{op.variant_test_name}", ())
    return op.name not in UNINITIALISED and listed is not None and str(dtype).removeprefix("torch.") not in listed


def difference(sample: Any, expected: Any, actual: Any, kind: str, values: bool) -> str:
    """The first difference of results or gradients in words. Without `values`, of shapes and devices alone."""
    where = kind if names_a_device((sample.input, sample.args, sample.kwargs)) else ""
    for what, want, have in zip(("forward", "gradient"), expected, actual, strict=True):
        if [w is None for w in want] != [h is None for h in have]:
            return f"{what}: a result is None on one side only"
        if text := differs(want, have, where, values):
            return f"{what}: {text}"
    return ""


def in_float32(op: Any, sample: Any, dtype: torch.dtype, wants_gradient: bool) -> Any:
    """What the CPU gives if it computes in float32 and rounds at the end."""
    arguments = map_leaves(partial(_cast, dtype, torch.float32), copied(op, sample, "cpu"))
    found = outcome(op, arguments, wants_gradient, sample.output_process_fn_grad)
    return map_leaves(partial(_cast, torch.float32, dtype), found)


def _cast(source: torch.dtype, target: torch.dtype, value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.dtype is source:
        return value.detach().to(target).requires_grad_(value.requires_grad)
    return target if value is source else value


def is_refusal(error: Exception) -> bool:
    """Whether a device says that it lacks an operator, a dtype or a size, as opposed to an error of the call."""
    return isinstance(error, NotImplementedError) or refusal_of(error) is not None
