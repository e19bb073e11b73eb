"""What gloo lacks, by what it has: kernels under c10d's operators, so that C++ callers (DDP, DTensor) come by too.

Collectives that only move bytes cross in a dtype of the same width. Reductions of small dtypes are done in a wider one,
averages of integers are sums that are divided afterwards. Collectives into one tensor go by its elements, as NCCL's do;
gloo goes by rows. Everything else goes on to torch's own kernel untouched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from torchdevice import compat
from torchdevice import compat_distributed as private
from torchdevice.errors import CollectiveUnsupported, explain_error

# What gloo moves and reduces in every version that we support.
CARRIED = frozenset(
    {torch.float32, torch.float64, torch.float16, torch.bfloat16}
    | {torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool, torch.complex64, torch.complex128}
)
# For moving bytes: a carried dtype by width. For reducing: the carried dtype whose result, cut back, is the right one.
BY_WIDTH = {1: torch.uint8, 2: torch.float16, 4: torch.int32, 8: torch.int64}
WIDER = {torch.int16: torch.int32, torch.uint16: torch.int32, torch.uint32: torch.int64}

# Operators that move, and those that reduce with the position of their reduction.
MOVING = (
    *("broadcast_", "allgather_", "_allgather_base_", "allgather_coalesced_", "allgather_into_tensor_coalesced_"),
    *("gather_", "scatter_", "alltoall_", "alltoall_base_"),
)
REDUCING = {
    "allreduce_": 2,
    "allreduce_coalesced_": 2,
    "reduce_": 2,
    "reduce_scatter_": 3,
    "_reduce_scatter_base_": 3,
    "reduce_scatter_tensor_coalesced_": 3,
}
BY_ELEMENTS = frozenset(
    {"_allgather_base_", "allgather_into_tensor_coalesced_", "_reduce_scatter_base_", "reduce_scatter_tensor_coalesced_"}
)
NOT_BY_GATHER = frozenset({torch.complex64, torch.complex128})
CPU = torch.device("cpu")


def tensors_in(value: Any) -> list[torch.Tensor]:
    """All tensors in nested lists."""
    if isinstance(value, compat.RealTensor):
        return [value]
    return [tensor for each in value for tensor in tensors_in(each)] if isinstance(value, (list, tuple)) else []


def mapped(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The same nested lists with each tensor changed."""
    if isinstance(value, compat.RealTensor):
        return change(value)
    return [mapped(each, change) for each in value] if isinstance(value, (list, tuple)) else value


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory in a dtype that gloo moves."""
    if tensor.dtype is torch.complex128:
        return torch.view_as_real(tensor)
    return tensor.view(BY_WIDTH[tensor.element_size()])


def flat(tensor: torch.Tensor) -> torch.Tensor:
    """The elements in their order; gloo says what it thinks of tensors that are not contiguous."""
    return tensor.view(-1) if tensor.is_contiguous() else tensor


def wide_dtype(tensor: torch.Tensor) -> torch.dtype:
    """The dtype in which gloo can reduce what `tensor` holds."""
    if tensor.dtype in CARRIED:
        return tensor.dtype
    if tensor.is_floating_point():
        return torch.float32
    if tensor.dtype in WIDER:
        return WIDER[tensor.dtype]
    raise CollectiveUnsupported(
        explain_error(
            f"a reduction of {tensor.dtype} over a process group was asked for",
            "the backend here is gloo, which has no such dtype, and no wider one holds its values",
            "reduce in torch.int64 or torch.float32",
        )
    )


def _move(name: str, native: Callable[..., Any]) -> Callable[..., Any]:
    def kernel(keys: Any, *args: Any) -> Any:
        dtypes = {tensor.dtype for value in args[:2] for tensor in tensors_in(value)}
        carried = list(args)
        if dtypes - CARRIED or (name == "gather_" and dtypes & NOT_BY_GATHER):
            carried = [mapped(value, as_bytes) if tensors_in(value) else value for value in args]
        elif name not in BY_ELEMENTS:
            return native(keys, *args)
        if name in BY_ELEMENTS:
            carried[:2] = [mapped(value, flat) for value in carried[:2]]
        result = native(keys, *carried)
        # Where the operator returns its tensors, they are the ones that it was given.
        return (args[0], result[1]) if isinstance(result, tuple) else result

    return kernel


def _reduce(name: str, position: int, native: Callable[..., Any]) -> Callable[..., Any]:
    average = int(dist.ReduceOp.AVG.value)

    def kernel(keys: Any, *args: Any) -> Any:
        tensors = tensors_in(args[0])
        operation = private.number_of_reduction(args[position])
        averaged = operation == average and not any(t.is_floating_point() or t.is_complex() for t in tensors)
        if not averaged and all(tensor.dtype in CARRIED for tensor in tensors):
            if name not in BY_ELEMENTS:
                return native(keys, *args)
            result = native(keys, *(mapped(value, flat) for value in args[:2]), *args[2:])
            return (args[0], result[1]) if isinstance(result, tuple) else result
        group = private.unboxed_group(args[position - 1])
        wide = {id(t): flat(t.to(wide_dtype(t))) for value in args[:position] for t in tensors_in(value)}
        replaced = [mapped(value, lambda t: wide[id(t)]) for value in args[: position - 1]]
        reduction = dist.ReduceOp(dist.ReduceOp.SUM if averaged else private.reduction_by_number(operation))
        root = args[position + 1] if name == "reduce_" else None
        futures = _start(name, private.backend_of(group, CPU), replaced, reduction, root)

        def finish(done: Any) -> list[torch.Tensor]:
            done.wait()  # raises what gloo raised
            for tensor in tensors:
                total = wide[id(tensor)]
                if averaged:
                    total = total.div(group.size(), rounding_mode="trunc")
                tensor.copy_(total.view_as(tensor))
            return tensors

        work = private.work_from_future(torch.futures.collect_all(futures).then(finish))
        returns_tensors = name in ("allreduce_", "reduce_scatter_", "_reduce_scatter_base_")
        return (args[0], private.boxed(work)) if returns_tensors else private.boxed(work)

    return kernel


def _start(name: str, backend: Any, args: Sequence[Any], reduction: Any, root: int | None) -> list[Any]:
    """The reduction on gloo itself; one future for each collective that it takes."""
    if name in ("allreduce_", "allreduce_coalesced_"):
        options = dist.AllreduceOptions()
        options.reduceOp = reduction
        return [backend.allreduce([tensor], options).get_future() for tensor in args[0]]
    if name == "reduce_":
        to_root = dist.ReduceOptions()
        to_root.reduceOp, to_root.rootRank = reduction, root
        return [backend.reduce(args[0], to_root).get_future()]
    scattering = dist.ReduceScatterOptions()
    scattering.reduceOp = reduction
    if name == "reduce_scatter_":
        return [backend.reduce_scatter(args[0], args[1], scattering).get_future()]
    pairs = [(args[0], args[1])] if name == "_reduce_scatter_base_" else zip(args[0], args[1], strict=True)
    return [private.reduce_scatter_single(backend, output, given, scattering).get_future() for output, given in pairs]


class _Engaged:
    """How many want the kernels; they are in place while anybody does."""

    wanted = 0
    kernels: compat.Registrations | None = None


def engage() -> Callable[[], None]:
    """Put the kernels in place; the result takes them away. Nothing on a torch that cannot call what was replaced."""
    _Engaged.wanted += 1
    if _Engaged.kernels is None:
        names = [f"c10d::{name}" for name in (*MOVING, *REDUCING)]
        natives = {name: compat.native_kernel(name, "CPU") for name in names}
        _Engaged.kernels = compat.Registrations("CPU", names)
        for name, native in natives.items():
            if native is None:
                continue
            short = name.removeprefix("c10d::")
            call = native.call_boxed
            kernel = _reduce(short, REDUCING[short], call) if short in REDUCING else _move(short, call)
            private.overriding(_Engaged.kernels.add, name, kernel, with_keyset=True)
    return _disengage


def _disengage() -> None:
    _Engaged.wanted -= 1
    if not _Engaged.wanted and _Engaged.kernels is not None:
        _Engaged.kernels.undo()
        _Engaged.kernels = None
