"""Samples of torch's operator database: copied to a device, run with their gradients, compared with the CPU's results.

`operators`, `refusals` and `fallbacks` use it, and `tools.conformance` for virtual devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from torchdevice._torch.samples import leaves_of, map_leaves

INDICES_ON_CPU = ("tensor_split",)  # torch insists on it
# Only the shape, dtype and device of their results are defined.
UNINITIALISED = ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided")
# The results after the first are statistics. A GPU keeps them in another dtype than the CPU, or does not make them.
WITH_STATISTICS = ("native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update", "native_layer_norm")

Arguments = tuple[Any, list[Any], dict[str, Any]]


def move_tensor(tensor: torch.Tensor, device: str) -> torch.Tensor:
    """A copy with the same strides in a storage of the same size, so that views of a larger tensor remain such."""
    source = tensor.detach()
    if source.layout != torch.strided or source.is_conj() or source.is_neg() or source.is_quantized or source.is_nested:
        return source.clone().to(device)
    raw = torch.empty(0, dtype=torch.uint8).set_(source.untyped_storage()).clone().to(device)
    empty = torch.empty(0, dtype=source.dtype, device=device)
    return empty.set_(raw.untyped_storage(), source.storage_offset(), source.size(), source.stride())


def move(value: Any, device: str) -> Any:
    """A tensor, a device or the name of one, on another device. Everything else as it is."""
    if isinstance(value, torch.Tensor):
        return move_tensor(value, device).requires_grad_(value.requires_grad)
    if isinstance(value, torch.device) and value.type == "cpu":
        return torch.device(device)
    if value == "cpu" and isinstance(value, str):
        return device
    return value


def copied(op: Any, sample: Any, device: str) -> Arguments:
    """The arguments of a sample on a device: the first, the other positional ones, and those by name."""
    torch.manual_seed(0)
    rest = (list(sample.args), dict(sample.kwargs))
    if op.name not in INDICES_ON_CPU:
        rest = map_leaves(lambda v: move(v, device), rest)
    return map_leaves(lambda v: move(v, device), sample.input), *rest


def names_a_device(arguments: Any) -> bool:
    """Whether the arguments determine the device of the result."""
    return any(isinstance(v, (torch.Tensor, torch.device)) or v == "cpu" for v in leaves_of(arguments))


def outcome(
    op: Any, arguments: Arguments, wants_gradient: bool, defined: Callable[[Any], Any] = lambda result: result
) -> tuple[list[Any], list[Any]]:
    """Flat results, and the gradients of all inputs that require one.

    `defined` keeps what does not depend on the device: a sample has such a function for eigenvectors and their signs.
    """
    first, rest, options = arguments
    torch.manual_seed(1)
    results = leaves_of(defined(op(first, *rest, **options)))
    if op.name in WITH_STATISTICS:
        results = results[:1]
    gradients: list[Any] = []
    if wants_gradient:
        leaves = [t for t in leaves_of((first, rest, options)) if requires_grad(t)]
        roots = [r.to_dense() if r.layout != torch.strided else r for r in results if requires_grad(r)]
        if leaves and roots:
            ones = [torch.ones_like(r) for r in roots]
            gradients = list(torch.autograd.grad(roots, leaves, ones, allow_unused=True))
    return results, gradients


def on_cpu(op: Any, sample: Any, wants_gradient: bool) -> tuple[list[Any], list[Any]] | None:
    """What the CPU gives for a sample. None if it refuses the sample: then there is nothing to compare with."""
    try:
        return outcome(op, copied(op, sample, "cpu"), wants_gradient, sample.output_process_fn_grad)
    except Exception:  # the CPU may refuse a sample for any reason
        return None


def requires_grad(value: Any) -> bool:
    """Whether it is a tensor with a gradient."""
    return isinstance(value, torch.Tensor) and value.requires_grad


def tolerance(want: torch.Tensor) -> dict[str, float]:
    """Relative to the largest value, because a device may compute a composite in other steps than the CPU."""
    if not (want.is_floating_point() or want.is_complex()) or not want.numel() or want.layout != torch.strided:
        return {"rtol": 1e-4, "atol": 1e-5}
    largest = want.detach().abs().nan_to_num(0, 0, 0).max().item()
    eps = {torch.float16: 4e-3, torch.bfloat16: 3e-2, torch.complex32: 4e-3}.get(want.dtype, 1e-4)
    return {"rtol": eps, "atol": eps * max(1.0, largest)}


def differs(expected: list[Any], actual: list[Any], kind: str, values: bool) -> str:
    """The first difference in words; "" if there is none. `kind`: the device type that tensors must be on, if any."""
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


def samples_of(op: Any, dtype: torch.dtype, wants_gradient: bool, most: int) -> Iterator[Any]:
    """The first `most` samples, on the CPU and with the same random numbers in every run."""
    torch.manual_seed(0)
    for number, sample in enumerate(op.sample_inputs("cpu", dtype, requires_grad=wants_gradient)):
        if number == most:
            return
        yield sample


def has_gradient(op: Any, dtype: torch.dtype) -> bool:
    """Whether the CPU computes a gradient of it for this dtype."""
    return bool(op.supports_autograd) and dtype in op.supported_backward_dtypes("cpu")
