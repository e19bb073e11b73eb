"""What gloo lacks, by what it has: kernels under c10d's operators, so that C++ callers (DDP, DTensor) come by too.

Collectives that only move bytes cross in a dtype of the same width. Reductions of small dtypes are done in a wider one,
averages of integers are sums that are divided afterwards. Collectives into one tensor go by its elements, as NCCL's do;
gloo goes by rows. Everything else goes to gloo as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

from torchdevice import compat, compat_dispatcher
from torchdevice import compat_distributed as private
from torchdevice.distributed.works import Following
from torchdevice.errors import CollectiveUnsupported, explain_error

# What gloo moves and reduces in every version that we support.
CARRIED = frozenset(
    {torch.float32, torch.float64, torch.float16, torch.bfloat16}
    | {torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool, torch.complex64, torch.complex128}
)
# For moving bytes: a carried dtype by width. For reducing: the carried dtype whose result, cut back, is the right one.
BY_WIDTH = {1: torch.uint8, 2: torch.float16, 4: torch.int32, 8: torch.int64}
WIDER = {torch.int16: torch.int32, torch.uint16: torch.int32, torch.uint32: torch.int64}


@dataclass(frozen=True)
class Collective:
    """How an operator of c10d is called on a backend. `each`: once for every pair of tensors in its lists.

    `returns`: the operator hands back its first argument beside the work.
    """

    method: str
    options: type
    returns: bool = False
    each: bool = False


COLLECTIVES = {
    "broadcast_": Collective("broadcast", c10d.BroadcastOptions, returns=True),
    "allgather_": Collective("allgather", c10d.AllgatherOptions, returns=True),
    "_allgather_base_": Collective("_allgather_base", c10d.AllgatherOptions, returns=True),
    "allgather_coalesced_": Collective("allgather_coalesced", c10d.AllgatherOptions),
    "allgather_into_tensor_coalesced_": Collective("_allgather_base", c10d.AllgatherOptions, each=True),
    "gather_": Collective("gather", c10d.GatherOptions),
    "scatter_": Collective("scatter", c10d.ScatterOptions, returns=True),
    "alltoall_": Collective("alltoall", c10d.AllToAllOptions, returns=True),
    "alltoall_base_": Collective("alltoall_base", c10d.AllToAllOptions),
    "allreduce_": Collective("allreduce", c10d.AllreduceOptions, returns=True),
    "allreduce_coalesced_": Collective("allreduce_coalesced", c10d.AllreduceCoalescedOptions),
    "reduce_": Collective("reduce", c10d.ReduceOptions),
    "reduce_scatter_": Collective("reduce_scatter", c10d.ReduceScatterOptions, returns=True),
    "_reduce_scatter_base_": Collective("_reduce_scatter_base", c10d.ReduceScatterOptions, returns=True),
    "reduce_scatter_tensor_coalesced_": Collective("_reduce_scatter_base", c10d.ReduceScatterOptions, each=True),
}
# An operator's argument → the field of the options that it becomes.
FIELDS = {"root_rank": "rootRank", "root_tensor": "rootTensor", "async_op": "asyncOp"}
BY_ELEMENTS = frozenset(
    {
        "_allgather_base_",
        "allgather_into_tensor_coalesced_",
        "_reduce_scatter_base_",
        "reduce_scatter_tensor_coalesced_",
    }
)
NOT_BY_GATHER = frozenset({torch.complex64, torch.complex128})
CPU = torch.device("cpu")


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


def _kernel(name: str, collective: Collective, names: Sequence[str]) -> Callable[..., Any]:
    """The operator on the group's CPU backend itself.

    Not through torch's kernel: gloo waits inside some collectives, and torch's kernel, called from Python, would keep
    the interpreter meanwhile, which the threads of other collectives need to end. A backend's methods let go of it.
    """
    average = int(dist.ReduceOp.AVG.value)
    tensor_arguments = names.index("process_group")

    def kernel(*args: Any) -> Any:
        given = dict(zip(names, args, strict=False))
        group = private.unboxed_group(given["process_group"])
        lists = [*args[:tensor_arguments]]
        written = compat.tensors_in(args[0])
        options = _options(collective, given)
        finish: Callable[[], list[torch.Tensor]] | None = None
        if "reduce_op" in given:
            operation = private.number_of_reduction(given["reduce_op"])
            averaged = operation == average and not any(t.is_floating_point() or t.is_complex() for t in written)
            options.reduceOp = dist.ReduceOp.SUM if averaged else private.reduction_by_number(operation)
            if averaged or any(tensor.dtype not in CARRIED for tensor in written):
                wide = {id(t): t.to(wide_dtype(t), copy=True) for value in lists for t in compat.tensors_in(value)}
                lists = [mapped(value, lambda tensor: wide[id(tensor)]) for value in lists]
                finish = _narrowing(written, wide, group.size() if averaged else 1)
        else:
            dtypes = {tensor.dtype for value in lists for tensor in compat.tensors_in(value)}
            if dtypes - CARRIED or (name == "gather_" and dtypes & NOT_BY_GATHER):
                lists = [mapped(value, as_bytes) for value in lists]
        if name in BY_ELEMENTS:
            lists = [mapped(value, flat) for value in lists]
        if name == "alltoall_" or (name == "allgather_" and len({tensor.shape for tensor in lists[0][0]}) > 1):
            return (args[0], private.boxed(_exchange(private.backend_of(group, CPU), name, lists, group.size())))
        splits = [given[each] for each in ("output_split_sizes", "input_split_sizes") if each in given]
        call = getattr(private.backend_of(group, CPU), collective.method)
        pairs = zip(*lists, strict=True) if collective.each else [tuple(lists)]
        works = [call(*pair, *splits, options) for pair in pairs]
        work = works[0] if finish is None and len(works) == 1 else Following(works, finish or (lambda: written))
        return (args[0], private.boxed(work)) if collective.returns else private.boxed(work)

    return kernel


def _exchange(backend: Any, name: str, lists: Sequence[Any], size: int) -> Following:
    """Parts of different sizes, which NCCL allows: one exchange of flat buffers, which gloo does with any splits.

    All ranks must take this way or none: the sizes that an `all_gather` is given are the same everywhere, those of an
    `all_to_all` are not, so it is always done like this.
    """
    outputs, inputs = (lists[0], lists[1]) if name == "alltoall_" else (lists[0][0], lists[1] * size)
    sent = torch.cat([tensor.reshape(-1) for tensor in inputs])
    received = sent.new_empty(sum(tensor.numel() for tensor in outputs))
    splits = [[tensor.numel() for tensor in each] for each in (outputs, inputs)]
    work = backend.alltoall_base(received, sent, *splits, c10d.AllToAllOptions())

    def finish() -> list[torch.Tensor]:
        for tensor, part in zip(outputs, received.split(splits[0]), strict=True):
            tensor.copy_(part.view_as(tensor))
        return list(outputs)

    return Following([work], finish)


def _options(collective: Collective, given: dict[str, Any]) -> Any:
    options = collective.options()
    for argument, field in FIELDS.items():
        if argument in given and hasattr(options, field):
            setattr(options, field, given[argument])
    if given.get("timeout", -1) >= 0:  # without one the group's own holds
        options.timeout = timedelta(milliseconds=given["timeout"])
    return options


def _narrowing(
    written: Sequence[torch.Tensor], wide: dict[int, torch.Tensor], parts: int
) -> Callable[[], list[torch.Tensor]]:
    """Puts results back into the tensors that were given; averages of integers are cut as NCCL cuts them."""

    def finish() -> list[torch.Tensor]:
        for tensor in written:
            total = wide[id(tensor)]
            tensor.copy_(total.div(parts, rounding_mode="trunc") if parts > 1 else total)
        return list(written)

    return finish


class _Engaged:
    """How many want the kernels; they are in place while anybody does."""

    wanted = 0
    kernels: compat_dispatcher.Registrations | None = None


def engage() -> Callable[[], None]:
    """Put the kernels in place; the result takes them away."""
    _Engaged.wanted += 1
    if _Engaged.kernels is None:
        _Engaged.kernels = compat_dispatcher.Registrations()
        for name, collective in COLLECTIVES.items():
            operator = compat_dispatcher.find_operator(f"c10d::{name}")
            names = [argument.name for argument in compat_dispatcher.schema_of(operator).arguments]
            kernel = _kernel(name, collective, names)
            private.overriding(_Engaged.kernels.add, f"c10d::{name}", "CPU", kernel)
    return _disengage


def _disengage() -> None:
    _Engaged.wanted -= 1
    if not _Engaged.wanted and _Engaged.kernels is not None:
        _Engaged.kernels.undo()
        _Engaged.kernels = None
