"""Collectives that gloo lacks, built from those it has. They are kernels of c10d's operators, so C++ callers get them.

Collectives that only move bytes use a dtype of the same width. Reductions of small dtypes run in a wider one. Averages
of integers are sums that are divided afterwards. Collectives into one tensor are element-wise, as in NCCL. Tensors on a
device that gloo cannot read are copied to the CPU first. They are copied back when the collective is done, so
asynchronous calls stay asynchronous.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

from torchdevice._torch import core, dispatcher
from torchdevice._torch import distributed as private
from torchdevice.distributed import backends
from torchdevice.errors import CollectiveUnsupported, explain_error

Finish = Callable[[], list[torch.Tensor]]

_waited_for: set[Any] = set()  # kept alive: C++ holds a Work without its Python object


class Following(dist.Work):
    """Waits for the works before it, then runs its last step. Their errors are raised in `wait`."""

    def __init__(self, before: Sequence[Any], finish: Finish) -> None:
        super().__init__()
        self._before = before
        self._finish = finish
        self._done = False
        self._error: RuntimeError | None = None
        self._future: Any = None
        self._results: list[torch.Tensor] = []
        _waited_for.add(self)

    def wait(self, *timeout: Any) -> bool:
        """Wait and finish. A second call does nothing, or raises the same error."""
        if self._error is not None:
            raise self._error
        try:
            if self._future is not None:
                self._future.wait()
            elif not self._done:
                for work in self._before:
                    work.wait(*timeout)
                self._results = self._finish()
        except RuntimeError as error:
            self._error = error
            raise
        finally:
            self._done = True
            _waited_for.discard(self)
        return True

    def is_completed(self) -> bool:
        """Whether all works before it are complete."""
        return self._done or all(work.is_completed() for work in self._before)

    def _source_rank(self) -> int:
        return int(self._before[0]._source_rank())

    def source_rank(self) -> int:
        """The rank of the sender."""
        return self._source_rank()

    def get_future(self) -> Any:
        """A future that completes after the last step."""
        if self._future is None and self._done and self._error is None:
            self._future = torch.futures.Future()
            self._future.set_result(self._results)
        elif self._future is None:
            try:
                futures = [work.get_future() for work in self._before]
            except RuntimeError:  # gloo has works without a future
                self._future = self._awaited()
            else:
                self._future = torch.futures.collect_all(futures).then(self._finished)
            _waited_for.discard(self)
        return self._future

    def _finished(self, done: Any) -> list[torch.Tensor]:
        for part in done.value():
            part.value()  # raises what gloo raised
        self._results = self._finish()
        return self._results

    def _awaited(self) -> Any:
        """A future that a thread completes, which waits for the works."""
        waited: torch.futures.Future[list[RuntimeError]] = torch.futures.Future()

        def wait() -> None:
            errors = []
            try:
                for work in self._before:
                    work.wait()
            except RuntimeError as error:
                errors.append(error)
            waited.set_result(errors)

        def finish(done: Any) -> list[torch.Tensor]:
            for error in done.value():
                raise error
            self._results = self._finish()
            return self._results

        future = waited.then(finish)
        threading.Thread(target=wait, name="torchdevice-collective", daemon=True).start()
        return future

    def result(self) -> list[torch.Tensor]:
        """The tensors that were written. Waits first, because they have no contents before."""
        self.wait()
        return self._results


# The dtypes that gloo supports in every torch version that we support.
CARRIED = frozenset(
    {torch.float32, torch.float64, torch.float16, torch.bfloat16}
    | {torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool, torch.complex64, torch.complex128}
)
# For moves: a supported dtype per width. For reductions: the supported dtype whose narrowed result is correct.
BY_WIDTH = {1: torch.uint8, 2: torch.float16, 4: torch.int32, 8: torch.int64}
WIDER = {torch.int16: torch.int32, torch.uint16: torch.int32, torch.uint32: torch.int64}


@dataclass(frozen=True)
class Collective:
    """How an operator of c10d is called on a backend. `each`: once for every pair of tensors in its lists.

    `returns`: the operator returns its first argument together with the work.
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
# An argument of the operator → the field of the options object.
FIELDS = {"root_rank": "rootRank", "root_tensor": "rootTensor", "async_op": "asyncOp"}
BY_ELEMENTS = frozenset(
    {
        "_allgather_base_",
        "allgather_into_tensor_coalesced_",
        "_reduce_scatter_base_",
        "reduce_scatter_tensor_coalesced_",
    }
)
# The works of NCCL have the whole output as their result, those of gloo its parts, or no future.
RESULTS_DIFFER = frozenset({"_allgather_base_", "_reduce_scatter_base_", "reduce_scatter_"})
NOT_BY_GATHER = frozenset({torch.complex64, torch.complex128})
CPU = torch.device("cpu")


def mapped(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The same nested lists with each tensor changed."""
    if isinstance(value, core.RealTensor):
        return change(value)
    return [mapped(each, change) for each in value] if isinstance(value, (list, tuple)) else value


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory in a dtype that gloo moves."""
    if tensor.dtype is torch.complex128:
        return torch.view_as_real(tensor)
    return tensor.view(BY_WIDTH[tensor.element_size()])


def flat(tensor: torch.Tensor) -> torch.Tensor:
    """The elements as a flat tensor. For non-contiguous tensors gloo raises its own error."""
    return tensor.view(-1) if tensor.is_contiguous() else tensor


def wide_dtype(tensor: torch.Tensor) -> torch.dtype:
    """The dtype in which gloo can reduce the values of `tensor`."""
    if tensor.dtype in CARRIED:
        return tensor.dtype
    if tensor.is_floating_point():
        return torch.float32
    if tensor.dtype in WIDER:
        return WIDER[tensor.dtype]
    raise CollectiveUnsupported(
        explain_error(
            f"a reduction of {tensor.dtype} over a process group was requested",
            "the backend is gloo, which supports neither this dtype nor a wider one that holds its values",
            "reduce in torch.int64 or torch.float32",
        )
    )


def _kernel(name: str, collective: Collective, operator: Any) -> Callable[..., Any]:
    """A kernel that calls the group's CPU backend directly.

    torch's kernel is not used: gloo blocks inside some collectives, and torch's kernel, called from Python, would hold
    the GIL, which the threads of other collectives need to finish. The methods of a backend release it.
    """
    names = [argument.name for argument in dispatcher.schema_of(operator).arguments]
    average = int(dist.ReduceOp.AVG.value)
    tensor_arguments = names.index("process_group")

    def kernel(*args: Any) -> Any:
        given = dict(zip(names, args, strict=False))
        group = private.unboxed_group(given["process_group"])
        lists = [*args[:tensor_arguments]]
        finish: Callable[[], list[torch.Tensor]] | None = None
        written = core.tensors_in(args[0])
        if _stands_for_vendor(group):
            check_contiguous(lists)
            if name in RESULTS_DIFFER:
                finish = functools.partial(list, written)
            if len(lists) > 1:
                lists[1] = mapped(lists[1], torch.Tensor.contiguous)  # gloo reads the parts of a list by address
        options = _options(collective, given)
        if "reduce_op" in given:
            operation = private.number_of_reduction(given["reduce_op"])
            averaged = operation == average and not any(t.is_floating_point() or t.is_complex() for t in written)
            if averaged:
                options.reduceOp = dist.ReduceOp.SUM
            elif operation is not None:
                options.reduceOp = private.reduction_by_number(operation)
            if averaged or any(tensor.dtype not in CARRIED for tensor in written):
                wide = {id(t): t.to(wide_dtype(t), copy=True) for value in lists for t in core.tensors_in(value)}
                lists = [mapped(value, lambda tensor: wide[id(tensor)]) for value in lists]
                finish = _narrowing(written, wide, group.size() if averaged else 1)
        else:
            dtypes = {tensor.dtype for value in lists for tensor in core.tensors_in(value)}
            if dtypes - CARRIED or (name == "gather_" and dtypes & NOT_BY_GATHER):
                lists = [mapped(value, as_bytes) for value in lists]
        if name in BY_ELEMENTS:
            lists = [mapped(value, flat) for value in lists]
        if name == "alltoall_" or (name == "allgather_" and len({tensor.shape for tensor in lists[0][0]}) > 1):
            return (args[0], private.boxed(_exchange(private.backend_of(group, CPU), name, lists, group.size())))
        if "reduce_op" in given and operation is None:
            arguments = (*lists, *args[tensor_arguments:])
            result = private.reduce_as_torch_does(operator, private.backend_of(group, CPU), group, arguments)
            work = private.unboxed_work(result[-1] if collective.returns else result)
            last = private.boxed(work if finish is None else Following([work], finish))
            return (args[0], last) if collective.returns else last
        splits = [given[each] for each in ("output_split_sizes", "input_split_sizes") if each in given]
        call = getattr(private.backend_of(group, CPU), collective.method)
        pairs = zip(*lists, strict=True) if collective.each else [tuple(lists)]
        works = [call(*pair, *splits, options) for pair in pairs]
        work = works[0] if finish is None and len(works) == 1 else Following(works, finish or (lambda: written))
        return (args[0], private.boxed(work)) if collective.returns else private.boxed(work)

    return kernel


def _stands_for_vendor(group: Any) -> bool:
    """Whether the program requested NCCL and the group runs on gloo instead."""
    return backends.names_vendor(backends.asked.get(private.group_name(group)) or str(dist.get_backend(group)))


def check_contiguous(lists: Sequence[Any]) -> None:
    """Refuse non-contiguous tensors with NCCL's message. gloo would access other elements than the tensor's.

    Lists of lists are the parts of a gather or a scatter, which NCCL copies.
    """
    for value in lists:
        nested = isinstance(value, (list, tuple)) and any(isinstance(each, (list, tuple)) for each in value)
        for tensor in () if nested else core.tensors_in(value):
            if tensor.layout is torch.strided and not core.is_contiguous_in_its_format(tensor):
                raise ValueError("Tensors must be contiguous")


def _exchange(backend: Any, name: str, lists: Sequence[Any], size: int) -> Following:
    """Parts of different sizes, which NCCL allows: one exchange of flat buffers, for which gloo accepts any splits.

    Either all ranks must use this path or none. The sizes of an `all_gather` are the same on all ranks. Those of an
    `all_to_all` are not, so it always uses this path.
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
    if given.get("timeout", -1) >= 0:  # else the group's timeout applies
        options.timeout = timedelta(milliseconds=given["timeout"])
    return options


def _narrowing(
    written: Sequence[torch.Tensor], wide: dict[int, torch.Tensor], parts: int
) -> Callable[[], list[torch.Tensor]]:
    """Copies results back into the given tensors. Averages of integers are truncated as in NCCL."""

    def finish() -> list[torch.Tensor]:
        for tensor in written:
            total = wide[id(tensor)]
            tensor.copy_(total.div(parts, rounding_mode="trunc") if parts > 1 else total)
        return list(written)

    return finish


class _Engaged:
    """A reference count of the kernels: they are registered while it is above zero."""

    wanted = 0
    kernels: dispatcher.Registrations | None = None


def apply() -> Callable[[], None]:
    """Register the kernels. Returns the undo."""
    _Engaged.wanted += 1
    if _Engaged.kernels is None:
        _Engaged.kernels = dispatcher.Registrations()
        for name, collective in COLLECTIVES.items():
            operator = dispatcher.find_operator(f"c10d::{name}")
            kernel = _kernel(name, collective, operator)
            _Engaged.kernels.add(f"c10d::{name}", "CPU", kernel)
    return _disengage


def _disengage() -> None:
    _Engaged.wanted -= 1
    if not _Engaged.wanted and _Engaged.kernels is not None:
        _Engaged.kernels.undo()
        _Engaged.kernels = None


# Operators whose first argument is only read, or selects the device. All others write to it.
WRITE_NOTHING = frozenset({"c10d::send", "c10d::barrier", "c10d::monitored_barrier_", "c10d::check_for_nan"})

# Called per collective with the operator, the dtypes, the seconds until it was started, and the bytes copied.
Note = Callable[[str, tuple[str, ...], float, int], None]


def _staged(name: str, writes: bool, note: Note | None) -> Callable[..., Any]:
    operator = dispatcher.find_operator(name)

    def kernel(*args: Any) -> Any:
        begun = time.perf_counter()
        copies = {id(tensor): tensor.to("cpu") for value in args for tensor in core.tensors_in(value)}
        result = operator(*(mapped(value, lambda tensor: copies[id(tensor)]) for value in args))
        if note is not None:
            back = core.tensors_in(args[0]) if writes else []
            moved = sum(tensor.numel() * tensor.element_size() for tensor in (*copies.values(), *back))
            dtypes = tuple(str(tensor.dtype).removeprefix("torch.") for tensor in list(copies.values())[:1])
            note(name, dtypes, time.perf_counter() - begun, moved)
        work = result[-1] if isinstance(result, tuple) else result
        if not writes or work is None:
            return result

        def finish() -> list[torch.Tensor]:
            tensors = core.tensors_in(args[0])
            for tensor in tensors:
                tensor.copy_(copies[id(tensor)])
            return tensors

        staged = private.boxed(Following([private.unboxed_work(work)], finish))
        return (args[0], staged) if isinstance(result, tuple) else staged

    return kernel


def stage(kind: str, layout: str = "", note: Note | None = None) -> Callable[[], None]:
    """Register a kernel for every operator of c10d that the CPU has for a layout. Returns the undo."""
    names = [name for name in dispatcher.kernels_under(f"{layout}CPU") if name.startswith("c10d::")]
    kernels = dispatcher.Registrations()
    for name in names:
        kernel = _staged(name, name not in WRITE_NOTHING, note)
        kernels.add(name, f"{layout}{kind.upper()}", kernel)
    return kernels.undo
