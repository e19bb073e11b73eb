"""The rows: which names of torch.distributed are replaced, and by what; and what is switched on with the first group.

Functions that make groups or reduce are found in torch by their parameters.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import torch.distributed as dist

from torchdevice import compat_compilers
from torchdevice import compat_distributed as private
from torchdevice.config import visible_devices
from torchdevice.cuda.register import Register
from torchdevice.cuda.surface import Kind, Row
from torchdevice.distributed import backends, batchnorm, collectives, environment, gaps, staging, vendor, wrappers
from torchdevice.distributed.groups import Groups
from torchdevice.patching import adapters
from torchdevice.patching.engine import Applied, Replacement, apply
from torchdevice.patching.points import resolve_path
from torchdevice.patching.translator import Translator
from torchdevice.policy.hosts import Host

C10D = "torch.distributed.distributed_c10d"
MESH = "torch.distributed.device_mesh"
AROUND = ("torch.distributed", "torch.nn.parallel", "torch._utils")
DDP = "torch.nn.parallel.DistributedDataParallel"

# Path and adapter; `{}` are the adapter's options.
WRITTEN: tuple[tuple[str, Callable[..., Any], dict[str, Any]], ...] = (
    (f"{DDP}.__init__", wrappers.data_parallel_init, {}),
    (f"{DDP}.register_comm_hook", wrappers.comm_hook, {}),
    (private.DDP_REFUSES_BATCH_NORM, wrappers.unneeded, {}),
    ("torch.nn.SyncBatchNorm.forward", wrappers.batch_norm_forward, {}),
    (f"{MESH}.init_device_mesh", adapters.parameter, {"name": "device_type", "as_type": True}),
    (f"{MESH}.DeviceMesh.__init__", adapters.parameter, {"name": "device_type", "as_type": True}),
    (f"{MESH}.DeviceMesh.from_group", adapters.parameter, {"name": "device_type", "as_type": True}),
    (private.WORK_WAIT, wrappers.naming_rank, {}),
)
# Modules that torch does not load by itself: replaced when somebody does. Module, the name that it defines, and a row.
FSDP = "torch.distributed.fsdp.fully_sharded_data_parallel"
LATER = ((FSDP, "FullyShardedDataParallel", f"{FSDP}.FullyShardedDataParallel.__init__", wrappers.sharded_init),)
# What user code is told about the backend that it asked for; torch itself gets the truth.
TOLD = Row("distributed", Kind.SIMULATED, "`nccl` where it was asked for", truth=True)


class Distributed:
    """The replacements of this process, built once, and what the first process group switches on."""

    def __init__(self, translator: Translator, register: Register, note_staged: staging.Note) -> None:
        self._translator = translator
        self._register = register
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
        """What to apply on a host; nothing where torch has no distributed package.

        `told`: the number of devices that code is told where there is one or none.
        """
        self._told = host.count if host.accelerated and host.type not in wrappers.UNNUMBERED else told
        if not dist.is_available() or host.type == "cuda":
            return []
        if host.type not in self._built:
            self._built[host.type] = [*self._creators(), *self._reductions(), *self._answers(), *self._written()]
        return [*self._built[host.type], *self._capability(host)]

    def start(self) -> list[Callable[[], object]]:
        """Wait for modules that are loaded later; the ways back."""
        if not dist.is_available():
            return []
        untraced = compat_compilers.when_dynamo_is_imported(lambda: private.leave_untraced("torchdevice.distributed"))
        return [untraced, *(self._when_loaded(*row) for row in LATER)]

    def _when_loaded(self, module: str, last: str, path: str, adapter: Callable[..., Any]) -> Callable[[], object]:
        applied: list[Applied] = []

        def replace() -> None:
            owner, _, name = path.rpartition(".")
            if path not in self._later:
                original = resolve_path(path)
                self._later[path] = Replacement(
                    path, resolve_path(owner), name, adapter(original, path, self._translator)
                )
            applied.append(apply([self._later[path]]))

        stop_waiting = compat_compilers.when_imported(module, last, replace)

        def go_back() -> None:
            stop_waiting()
            while applied:
                applied.pop().undo()

        return go_back

    def stop(self) -> None:
        """Take away what the first group switched on."""
        self._running = False
        while self._ways_back:
            self._ways_back.pop()()

    def _first_group(self) -> None:
        if self._running:
            return
        self._running = True
        kind = self._translator.host.type
        self._ways_back.append(environment.carry_over())
        environment.note(self._register.ledger, kind)
        self._ways_back.append(collectives.engage())
        if kind in wrappers.UNNUMBERED:
            self._ways_back.append(batchnorm.engage(kind))
            if kind != "cpu":
                self._ways_back += [staging.engage(kind, layout, self._note_staged) for layout in ("", "Sparse")]

    def _on_gloo(self) -> bool:
        return self._translator.in_force and backends.own(self._translator.host.type) == backends.EVERYWHERE

    def _creators(self) -> Iterator[Replacement]:
        for name in gaps.functions_with("backend"):
            if name == "split_group":
                yield from self._everywhere(name, lambda f, path: gaps.splitting(f, path, self._on_gloo))
            elif name != "is_backend_available":
                yield from self._everywhere(name, self._groups.creating)

    def _reductions(self) -> Iterator[Replacement]:
        for name in private.reductions():
            path = f"torch.distributed.ProcessGroup.{name}"
            value = gaps.premultiplied(getattr(dist.ProcessGroup, name), path, self._on_gloo)
            yield Replacement(path, dist.ProcessGroup, name, value)
        coalescing = resolve_path(private.COALESCING)
        value = gaps.coalescing(coalescing, private.COALESCING, self._on_gloo)
        yield from _places(private.COALESCING, coalescing, value)
        for name in gaps.functions_with("device_ids"):
            yield from self._everywhere(name, lambda f, path: wrappers.with_device_ids(f, path, self._translator))

    def _answers(self) -> Iterator[Replacement]:
        answers = {
            "get_backend": self._groups.answer_backend,
            "get_backend_config": self._groups.answer_config,
            "is_backend_available": _offers_vendors,
            "is_nccl_available": lambda original: lambda: True,
        }
        for name, answer in answers.items():

            def adapt(original: Any, path: str, answer: Any = answer) -> Any:
                return self._register.answering(TOLD, path, original, answer(original))

            yield from self._everywhere(name, adapt)
        if not hasattr(dist, "ProcessGroupNCCL"):
            made = vendor.group_class("NCCL")
            for holder in (C10D, "torch.distributed"):
                yield Replacement(f"{holder}.ProcessGroupNCCL", sys.modules[holder], "ProcessGroupNCCL", made)

    def _written(self) -> Iterator[Replacement]:
        if private.CPU_COUNT is not None:
            count = resolve_path(private.CPU_COUNT)
            counting = wrappers.counting_for_launcher(count, private.CPU_COUNT, self._translator, self._devices)
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
        """gloo serves the host's device too, by staging: torch asks this table when it makes a group."""
        table = dist.Backend.backend_capability
        if host.accelerated and host.type in wrappers.UNNUMBERED and host.type not in table[backends.EVERYWHERE]:
            wider = {**table, backends.EVERYWHERE: [*table[backends.EVERYWHERE], host.type]}
            yield Replacement("torch.distributed.Backend.backend_capability", dist.Backend, "backend_capability", wider)

    def _everywhere(self, name: str, adapt: Callable[[Any, str], Any]) -> list[Replacement]:
        original = getattr(dist, name)
        path = f"torch.distributed.{name}"
        return _places(path, original, adapt(original, path))


def _places(path: str, original: Any, value: Any) -> list[Replacement]:
    """The object under every name that a loaded module around torch.distributed has for it: many import it early."""
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
