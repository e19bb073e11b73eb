"""Checks a list of OpInfo operators on a virtual device against the CPU, one JSON line an operator on stdout.

Runs in a process of its own (see run.py). An operator passes when every sample that the CPU accepts gives the same
values, gradients and devices. `started` lines let the parent name the operator that killed this process.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

import torchdevice.virtual

SAMPLES = 40
# The real backend's own words for a dtype or an operator that it lacks: the intended result.
REFUSALS = (
    "RuntimeError: Adaptive pool MPS: ",
    "TypeError: Cannot convert a MPS Tensor to float64",
    "TypeError: Trying to convert ComplexDouble to the MPS",
    "NotImplementedError: The operator '",
    "NotImplementedError: Could not run 'new_compressed_tensor' from the 'mps:0' device",
)
# Their values are not defined, only shape, dtype and device.
INDICES_ON_CPU = ("tensor_split",)  # torch insists on it
UNINITIALISED = ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided")


def names(dtype: torch.dtype) -> list[str]:
    return [op.formatted_name for op in op_db if dtype in op.supported_dtypes("cpu")]


def move_tensor(tensor: torch.Tensor, device: str) -> torch.Tensor:
    """A copy with the same strides in a storage of the same size: views of something larger stay that."""
    source = tensor.detach()
    if source.layout != torch.strided or source.is_conj() or source.is_neg() or source.is_quantized or source.is_nested:
        return source.clone().to(device)
    raw = torch.empty(0, dtype=torch.uint8).set_(source.untyped_storage()).clone().to(device)
    empty = torch.empty(0, dtype=source.dtype, device=device)
    return empty.set_(raw.untyped_storage(), source.storage_offset(), source.size(), source.stride())


def move(value: Any, device: str) -> Any:
    if isinstance(value, torch.Tensor):
        return move_tensor(value, device).requires_grad_(value.requires_grad)
    if isinstance(value, torch.device) and value.type == "cpu":
        return torch.device(device)
    if value == "cpu" and isinstance(value, str):
        return device
    return value


def copied(op: Any, sample: Any, device: str) -> tuple[Any, list[Any], dict[str, Any]]:
    torch.manual_seed(0)
    rest = (list(sample.args), dict(sample.kwargs))
    if op.name not in INDICES_ON_CPU:
        rest = pytree.tree_map(lambda v: move(v, device), rest)
    return pytree.tree_map(lambda v: move(v, device), sample.input), *rest


def names_a_device(arguments: Any) -> bool:
    return any(isinstance(v, (torch.Tensor, torch.device)) or v == "cpu" for v in pytree.tree_leaves(arguments))


def outcome(
    op: Any, arguments: tuple[Any, list[Any], dict[str, Any]], wants_gradient: bool
) -> tuple[list[Any], list[Any]]:
    """Flat results, and the gradients of all inputs that require one."""
    first, rest, options = arguments
    torch.manual_seed(1)
    results = pytree.tree_leaves(op(first, *rest, **options))
    gradients: list[Any] = []
    if wants_gradient:
        leaves = [t for t in pytree.tree_leaves((first, rest, options)) if requires_grad(t)]
        roots = [r.to_dense() if r.layout != torch.strided else r for r in results if requires_grad(r)]
        if leaves and roots:
            ones = [torch.ones_like(r) for r in roots]
            gradients = list(torch.autograd.grad(roots, leaves, ones, allow_unused=True))
    return results, gradients


def requires_grad(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def tolerance(want: torch.Tensor) -> dict[str, float]:
    """Composites may take another path than on the CPU (attention): rounding relative to the largest value."""
    if not (want.is_floating_point() or want.is_complex()) or not want.numel() or want.layout != torch.strided:
        return {"rtol": 1e-4, "atol": 1e-5}
    largest = want.detach().abs().nan_to_num(0, 0, 0).max().item()
    eps = {torch.float16: 4e-3, torch.bfloat16: 3e-2, torch.complex32: 4e-3}.get(want.dtype, 1e-4)
    return {"rtol": eps, "atol": eps * max(1.0, largest)}


def differs(expected: list[Any], actual: list[Any], kind: str, values: bool) -> str:
    if len(expected) != len(actual):
        return f"{len(actual)} results instead of {len(expected)}"
    for want, have in zip(expected, actual, strict=True):
        if not isinstance(want, torch.Tensor):
            if isinstance(want, (torch.dtype, torch.device, torch.layout)) or want is None:
                continue
            if want != have and not (isinstance(want, float) and want != want):
                return f"{have!r} instead of {want!r}"
            continue
        if have is None:
            return "nothing instead of a tensor"
        if kind and have.device.type != kind:
            return f"a result on {have.device}"
        if values:
            try:
                torch.testing.assert_close(
                    have.cpu(), want.cpu(), equal_nan=True, check_stride=False, **tolerance(want)
                )
            except AssertionError as error:
                return str(error).splitlines()[0]
        elif have.shape != want.shape:
            return f"shape {have.shape} instead of {want.shape}"
    return ""


def samples_of(op: Any, dtype: torch.dtype, wants_gradient: bool) -> Iterator[Any]:
    torch.manual_seed(0)
    for number, sample in enumerate(op.sample_inputs("cpu", dtype, requires_grad=wants_gradient)):
        if number == SAMPLES:
            return
        yield sample


def is_refusal(text: str) -> bool:
    return text.startswith(REFUSALS) or text.endswith("on the MPS device.")


def check(op: Any, kind: str, dtype: torch.dtype) -> dict[str, Any]:
    """The first sample that goes wrong decides; a refused one is noted, and the others must still be right."""
    wants_gradient = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    ran, refused, refusal = 0, 0, ""
    for sample in samples_of(op, dtype, wants_gradient):
        try:
            expected = outcome(op, copied(op, sample, "cpu"), wants_gradient)
        except Exception:  # the CPU itself refuses this sample: nothing to compare with
            continue
        ran += 1
        try:
            arguments = copied(op, sample, kind)
            actual = outcome(op, arguments, wants_gradient)
        except Exception as error:
            text = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            if not is_refusal(text):
                return {"status": "raised", "error": text}
            refused, refusal = refused + 1, refusal or text
            continue
        values = op.name not in UNINITIALISED
        for what, want, have in zip(("forward", "gradient"), expected, actual, strict=True):
            if text := differs(
                want, have, kind if names_a_device((sample.input, sample.args, sample.kwargs)) else "", values
            ):
                return {"status": "differs", "error": f"{what}: {text}"}
    if refused:
        return {"status": "refused", "error": f"{refused} of {ran} samples: {refusal}"}
    return {"status": "passed" if ran else "no sample", "samples": ran}


def main() -> None:
    kind, support, dtype_name = sys.argv[1:4]
    wanted = set(sys.stdin.read().split("\n"))
    dtype = getattr(torch, dtype_name)
    torchdevice.virtual.install(kind, support=support)  # type: ignore[arg-type]
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for op in op_db:
        if op.formatted_name in wanted:
            print(json.dumps({"op": op.formatted_name, "status": "started"}), flush=True)
            print(json.dumps({"op": op.formatted_name, **check(op, kind, dtype)}), flush=True)


if __name__ == "__main__":
    main()
