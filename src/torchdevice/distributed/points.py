"""The rows: which names of torch.distributed are replaced, by which adapter, and what starts with the first group.

Functions that create groups or reduce are found in torch by their parameters. First come functions that gloo lacks;
each of them calls `applies` to check whether gloo replaces NCCL. Then come adapters for classes and functions.
"""

from __future__ import annotations

import functools
import inspect
import sys
import weakref
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any

import torch
import torch.distributed as dist

from torchdevice._torch import distributed as private
from torchdevice._torch import dtensors, imports
from torchdevice._torch.core import RealDevice, RealTensor
from torchdevice.answers.audience import Audience
from torchdevice.answers.rows import Kind, Row
from torchdevice.config import visible_devices
from torchdevice.distributed import backends, batchnorm, collectives
from torchdevice.distributed.groups import Groups
from torchdevice.policy.hosts import Host
from torchdevice.translate import adapters
from torchdevice.translate.engine import Replacement, apply, dress, parameter_names
from torchdevice.translate.points import resolve_path
from torchdevice.translate.translator import Translator

Function = Callable[..., Any]
Applies = Callable[[], bool]


def functions_with(parameter: str) -> Iterator[str]:
    """Public functions of torch.distributed that have a parameter, by name."""
    for name, value in sorted(vars(dist).items()):
        if name.startswith("_") or type(value) is not FunctionType:
            continue
        if parameter in parameter_names(value):
            yield name


def coalescing(original: Function, path: str, applies: Applies) -> Function:
    """Drops the device, which requests coalescing by the backend. gloo cannot, so torch's own coalescing is used."""
    signature = inspect.signature(original)

    def manager(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        if applies():
            given.arguments.pop("device", None)
        return original(*given.args, **given.kwargs)

    return dress(manager, original, path)


def splitting(original: Function, path: str, applies: Applies) -> Function:
    """`split_group`: gloo cannot split a group, so the part with this process is created as a new group."""
    signature = inspect.signature(original)

    def split_group(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        if not applies():
            return original(*args, **kwargs)
        parent = given.get("parent_pg") or dist.group.WORLD
        ranks = dist.get_process_group_ranks(parent)
        mine = dist.get_rank(parent)
        for part in given.get("split_ranks") or ():
            if mine in part:
                members = [ranks[rank] for rank in sorted(part)]
                options = {name: given[name] for name in ("timeout", "group_desc") if given.get(name) is not None}
                return dist.new_group(members, use_local_synchronization=True, **options)
        return None

    return dress(split_group, original, path)


def premultiplied(original: Function, path: str, applies: Applies) -> Function:
    """A method of process groups that supports `ReduceOp.PREMUL_SUM(factor)`: multiply, then sum.

    Methods are replaced and not the public functions, because torch's compiler recognises those by identity.
    """
    scaled = dist.ReduceOp.RedOpType.PREMUL_SUM

    def reduce(self: Any, *args: Any, **kwargs: Any) -> Any:
        options: Any = next((each for each in (*args, *kwargs.values()) if hasattr(each, "reduceOp")), None)
        operation = getattr(options, "reduceOp", None)
        if operation is None or not applies():
            return original(self, *args, **kwargs)
        if operation != scaled or not hasattr(operation, "factor"):  # torch 2.9 hides it: gloo refuses the reduction
            with private.reducing(operation):
                return original(self, *args, **kwargs)
        *output, given = [position for position, each in enumerate(args) if each is not options]
        if output:
            args = (*args[:given], _times(args[given], operation.factor), *args[given + 1 :])
        else:  # one argument is both input and output
            for tensor in args[given]:
                tensor.mul_(operation.factor)
        options.reduceOp = dist.ReduceOp.SUM
        with private.reducing(options.reduceOp):
            return original(self, *args, **kwargs)

    return dress(reduce, original, path)


def _times(value: Any, factor: Any) -> Any:
    return value * factor if isinstance(value, RealTensor) else [_times(each, factor) for each in value]


# Device types without an index, for which DistributedDataParallel accepts no `device_ids`.
UNNUMBERED = frozenset({"cpu", "mps"})


def data_parallel_init(original: Function, path: str, translator: Translator) -> Function:
    """`DistributedDataParallel(device_ids=[rank], output_device=rank)`: the module stays on its device."""
    signature = inspect.signature(original)

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        if translator.in_force:
            given = signature.bind(self, *args, **kwargs)
            count = translator.host.count
            if translator.host.type in UNNUMBERED:
                given.arguments.pop("device_ids", None)
                given.arguments.pop("output_device", None)
            else:
                _fold(given.arguments, "device_ids", lambda ids: [_folded(each, count) for each in ids])
                _fold(given.arguments, "output_device", lambda each: _folded(each, count))
            args, kwargs = given.args[1:], given.kwargs
        original(self, *args, **kwargs)
        _keep_group_until_reducer_is_gone(self)

    return dress(__init__, original, path)


def data_parallel_setstate(original: Function, path: str, translator: Translator) -> Function:
    """`DistributedDataParallel.__setstate__`: a copy has a separate reducer."""

    def __setstate__(self: Any, state: dict[str, Any]) -> None:  # noqa: N807
        original(self, state)
        _keep_group_until_reducer_is_gone(self)

    return dress(__setstate__, original, path)


def _keep_group_until_reducer_is_gone(module: Any) -> None:
    """Prevents a deadlock: the reducer in C++ must not drop the last reference to the group.

    The reducer is dropped while the GIL is held, and dropping a group waits for gloo's threads. Such a thread may wait
    for the GIL to drop a tensor, because tensors that passed through a kernel in Python have a Python object. Dropping
    a group from Python releases the GIL first.
    """
    owners = (getattr(module, name, None) for name in ("reducer", "logger"))  # the logger holds the reducer
    for owner in filter(None, owners):  # torch makes neither if the caller reduces all parameters
        weakref.finalize(owner, _nothing, module.process_group).atexit = False


def _nothing(group: Any) -> None:
    """Does nothing. The finalizer holds the group as the argument of this function."""


def _fold(arguments: dict[str, Any], name: str, change: Callable[[Any], Any]) -> None:
    if arguments.get(name) is not None:
        arguments[name] = change(arguments[name])


def _folded(asked: Any, count: int) -> Any:
    """Folds an index that the host does not have. Device objects were translated when they were created."""
    return asked % count if isinstance(asked, int) else asked


def sharded_init(original: Function, path: str, translator: Translator) -> Function:
    """`FullyShardedDataParallel(device_id=local_rank)`: on a device type without indices, that device."""
    signature = inspect.signature(original)

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        given = signature.bind(self, *args, **kwargs)
        if translator.in_force and translator.host.type in UNNUMBERED:
            given.arguments["device_id"] = RealDevice(translator.host.type)
        original(*given.args, **given.kwargs)

    return dress(__init__, original, path)


def with_device_ids(original: Function, path: str, translator: Translator) -> Function:
    """`barrier(device_ids=[local_rank])`: indices that do not exist are folded, or dropped if there are none."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("device_ids") is not None and translator.in_force:
            if translator.host.type in UNNUMBERED:
                del kwargs["device_ids"]
            else:
                kwargs["device_ids"] = [_folded(each, translator.host.count) for each in kwargs["device_ids"]]
        return original(*args, **kwargs)

    return dress(call, original, path)


def comm_hook(original: Function, path: str, translator: Translator) -> Function:
    """`register_comm_hook`: without NCCL torch refuses bfloat16 hooks by name, although gloo supports bfloat16."""

    def register_comm_hook(self: Any, state: object, hook: Function) -> Any:
        if translator.in_force and getattr(hook, "__name__", "").startswith("bf16_compress"):
            inner = hook

            def hook(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
                return inner(state, bucket)

            hook.__annotations__ = dict(getattr(inner, "__annotations__", {}))
            hook.__name__, hook.__doc__ = f"through_{inner.__name__}", inner.__doc__
        return original(self, state, hook)

    return dress(register_comm_hook, original, path)


def batch_norm_forward(original: Function, path: str, translator: Translator) -> Function:
    """`SyncBatchNorm.forward`: torch's own code, which then also accepts the host's device."""
    here = private.under_another_backend_name(original, lambda: translator.host.type)

    def forward(self: Any, input: torch.Tensor) -> torch.Tensor:
        if translator.in_force and input.device.type == translator.host.type:
            return here(self, input)
        return original(self, input)

    return dress(forward, original, path)


def unneeded(original: Function, path: str, translator: Translator) -> Function:
    """Disables a check of torch for something that works here."""

    def check(self: Any, *args: Any) -> Any:
        return None if translator.in_force else original(self, *args)

    return dress(check, original, path)


def known_device(original: Function, path: str, translator: Translator) -> Function:
    """A check of torch against a list of device types. It accepts the host's type as well."""

    def is_known(tensor: Any) -> bool:
        return bool(original(tensor)) or (translator.in_force and tensor.device.type == translator.host.type)

    return dress(is_known, original, path)


def naming_rank(original: Function, path: str, translator: Translator) -> Function:
    """`Work.wait`: adds the rank to errors of the transport."""

    def wait(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(self, *args, **kwargs)
        except RuntimeError as error:
            if not translator.in_force or not dist.is_initialized() or str(error).startswith("[rank"):
                raise
            place = f"[rank {dist.get_rank()} of {dist.get_world_size()}]"
            raise type(error)(f"{place} {error}") from error

    return dress(wait, original, path)


def counting_for_launcher(
    original: Function, path: str, translator: Translator, devices: Callable[[], int]
) -> Function:
    """torchrun's `--nproc-per-node=auto` counts CPUs if there is no accelerator. Returns the reported device count."""

    def cpu_count() -> Any:
        frame = inspect.currentframe()
        asker = frame.f_back if frame is not None else None
        auto = asker is not None and asker.f_locals.get("nproc_per_node") == "auto"
        return devices() if auto and translator.in_force else original()

    return dress(cpu_count, original, path)


C10D = "torch.distributed.distributed_c10d"
MESH = "torch.distributed.device_mesh"
AROUND = ("torch.distributed", "torch.nn.parallel", "torch._utils")
DDP = "torch.nn.parallel.DistributedDataParallel"

# Path and adapter; `{}` are the adapter's options.
WRITTEN: tuple[tuple[str, Callable[..., Any], dict[str, Any]], ...] = (
    (f"{DDP}.__init__", data_parallel_init, {}),
    (f"{DDP}.__setstate__", data_parallel_setstate, {}),
    (f"{DDP}.register_comm_hook", comm_hook, {}),
    (private.DDP_REFUSES_BATCH_NORM, unneeded, {}),
    ("torch.nn.SyncBatchNorm.forward", batch_norm_forward, {}),
    (f"{MESH}.init_device_mesh", adapters.parameter, {"name": "device_type", "as_type": True}),
    (f"{MESH}.DeviceMesh.__init__", adapters.parameter, {"name": "device_type", "as_type": True}),
    (f"{MESH}.DeviceMesh.from_group", adapters.parameter, {"name": "device_type", "as_type": True}),
    (private.WORK_WAIT, naming_rank, {}),
)
# Modules that torch imports lazily: replaced when they are imported. Module, the name that it defines, and a row.
FSDP = "torch.distributed.fsdp.fully_sharded_data_parallel"
LATER = (
    (FSDP, "FullyShardedDataParallel", f"{FSDP}.FullyShardedDataParallel.__init__", sharded_init),
    (private.SCALER_KNOWS.rpartition(".")[0], "ShardedGradScaler", private.SCALER_KNOWS, known_device),
)
# What user code reads back about the backend that it requested. torch itself sees the real one.
TOLD = Row("distributed", Kind.SIMULATED, "`nccl` if it was requested", truth=True)


class Distributed:
    """The replacements of this process, built once, and the patches that the first process group enables."""

    def __init__(self, translator: Translator, audience: Audience, note_staged: collectives.Note) -> None:
        self._translator = translator
        self._audience = audience
        self._note_staged = note_staged
        self._told = 1
        self._groups = Groups(translator, self._first_group, self._devices)
        self._built: dict[str, list[Replacement]] = {}
        self._later: dict[str, Replacement] = {}
        self._ways_back: list[Callable[[], object]] = []
        self._running = False

    def _devices(self) -> int:
        return visible_devices(self._told)

    def select(self, host: Host, told: int = 1) -> list[Replacement]:
        """The replacements for a host; none if torch has no distributed package.

        `told`: the device count that is reported to code if there is one device or none.
        """
        self._told = host.count if host.accelerated and host.type not in UNNUMBERED else told
        if not dist.is_available() or host.type == "cuda":
            return []
        if host.type not in self._built:
            self._built[host.type] = [*self._creators(), *self._reductions(), *self._answers(), *self._written()]
        return [*self._built[host.type], *self._capability(host)]

    def apply(self) -> Iterator[Callable[[], object]]:
        """Watch for the first group, and for modules that are imported later. Yields an undo per step."""
        yield self._undo_first_group
        if dist.is_available():
            for row in LATER:
                yield self._when_loaded(*row)
            yield dtensors.apply()

    def _when_loaded(self, module: str, last: str, path: str, adapter: Callable[..., Any]) -> Callable[[], object]:
        def replace() -> Callable[[], object]:
            owner, _, name = path.rpartition(".")
            if path not in self._later:
                original = resolve_path(path)
                self._later[path] = Replacement(
                    path, resolve_path(owner), name, adapter(original, path, self._translator)
                )
            return apply([self._later[path]]).undo

        return imports.when_imported(module, last, replace)

    def _undo_first_group(self) -> None:
        self._running = False
        while self._ways_back:
            self._ways_back.pop()()

    def _first_group(self) -> None:
        if self._running:
            return
        self._running = True
        kind = self._translator.host.type
        self._ways_back.append(backends.carry_over())
        backends.note(self._audience.ledger, kind)
        self._ways_back.append(collectives.apply())
        if kind in UNNUMBERED:
            self._ways_back.append(batchnorm.apply(kind))
            if kind != "cpu":
                self._ways_back += [collectives.stage(kind, layout, self._note_staged) for layout in ("", "Sparse")]

    def _on_gloo(self) -> bool:
        return self._translator.in_force and backends.own(self._translator.host.type) == backends.EVERYWHERE

    def _creators(self) -> Iterator[Replacement]:
        yield from self._everywhere("split_group", lambda f, path: splitting(f, path, self._on_gloo))
        for name in functions_with("backend"):
            if name not in ("split_group", "is_backend_available"):
                yield from self._everywhere(name, self._groups.creating)

    def _reductions(self) -> Iterator[Replacement]:
        for name in private.reductions():
            path = f"torch.distributed.ProcessGroup.{name}"
            value = premultiplied(getattr(dist.ProcessGroup, name), path, self._on_gloo)
            yield Replacement(path, dist.ProcessGroup, name, value)
        manager = resolve_path(private.COALESCING)
        value = coalescing(manager, private.COALESCING, self._on_gloo)
        yield from _places(private.COALESCING, manager, value)
        for name in functions_with("device_ids"):
            yield from self._everywhere(name, lambda f, path: with_device_ids(f, path, self._translator))

    def _answers(self) -> Iterator[Replacement]:
        answers = {
            "get_backend": self._groups.answer_backend,
            "get_backend_config": self._groups.answer_config,
            "is_backend_available": _offers_vendors,
            "is_nccl_available": lambda original: lambda: True,
        }
        for name, answer in answers.items():

            def adapt(original: Any, path: str, answer: Any = answer) -> Any:
                return self._audience.answering(TOLD, path, original, answer(original))

            yield from self._everywhere(name, adapt)
        if not hasattr(dist, "ProcessGroupNCCL"):
            made = backends.group_class("NCCL")
            for holder in (C10D, "torch.distributed"):
                yield Replacement(f"{holder}.ProcessGroupNCCL", sys.modules[holder], "ProcessGroupNCCL", made)

    def _written(self) -> Iterator[Replacement]:
        if private.CPU_COUNT is not None:
            count = resolve_path(private.CPU_COUNT)
            counting = counting_for_launcher(count, private.CPU_COUNT, self._translator, self._devices)
            yield from _places(private.CPU_COUNT, count, counting)
        for path, adapter, options in WRITTEN:
            holder, _, name = path.rpartition(".")
            owner = resolve_path(holder)
            original = getattr(owner, name)
            value = adapter(original, path, self._translator, **options)
            if isinstance(owner, type):
                if isinstance(inspect.getattr_static(owner, name), staticmethod):
                    value = staticmethod(value)
                yield Replacement(path, owner, name, value)
            else:
                yield from _places(path, original, value)

    def _capability(self, host: Host) -> Iterator[Replacement]:
        """gloo serves the host's device too, by staging. torch reads this table when it creates a group."""
        table = dist.Backend.backend_capability
        if host.accelerated and host.type in UNNUMBERED and host.type not in table[backends.EVERYWHERE]:
            wider = {**table, backends.EVERYWHERE: [*table[backends.EVERYWHERE], host.type]}
            yield Replacement("torch.distributed.Backend.backend_capability", dist.Backend, "backend_capability", wider)

    def _everywhere(self, name: str, adapt: Callable[[Any, str], Any]) -> list[Replacement]:
        original = getattr(dist, name)
        path = f"torch.distributed.{name}"
        return _places(path, original, adapt(original, path))


def _places(path: str, original: Any, value: Any) -> list[Replacement]:
    """Every name of the object in loaded modules of torch.distributed, because many import it early."""
    name = path.rpartition(".")[2]
    return [
        Replacement(f"{module.__name__}.{name}", module, name, value)
        for module in _around(len(sys.modules))
        if vars(module).get(name) is original
    ]


@functools.lru_cache(maxsize=1)
def _around(loaded: int) -> list[ModuleType]:
    return [module for name, module in list(sys.modules.items()) if name.startswith(AROUND)]


def _offers_vendors(original: Callable[[str], bool]) -> Callable[[str], bool]:
    def is_backend_available(backend: str) -> bool:
        return True if backends.names_vendor(backend) else original(backend)

    return is_backend_available
