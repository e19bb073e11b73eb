"""Rows become replacements: which object answers a name, who gets the truth instead, and the record of each answer.

One `Masquerade` per namespace that the host lacks, built once a process; `session` applies its replacements.
"""

from __future__ import annotations

import importlib
import itertools
import os
import sys
from collections.abc import Iterator
from types import FrameType, ModuleType
from typing import Any

import torch

from torchdevice.compat import RealDevice
from torchdevice.cuda import device, graphs, libraries, memory, metal, random, streams, vitals
from torchdevice.cuda.shadow import Shadow, module_names
from torchdevice.cuda.surface import ANSWERS, SUBMODULES, SURFACE, TRUTH_PACKAGES, Kind, Row
from torchdevice.cuda.target import Target, target_of
from torchdevice.errors import CudaOnlyError, explain_error
from torchdevice.events import Key, Ledger, Simulated, Site
from torchdevice.patching.adapters import dress
from torchdevice.patching.engine import Replacement
from torchdevice.patching.standins import stand_in
from torchdevice.patching.translator import Translator
from torchdevice.policy.hosts import Host

_getframe = sys._getframe
_UNCOUNTED: Iterator[int] = itertools.repeat(0)

# torch's compiler asks for the code that it traces: its questions are the user's.
_ASKS_FOR_THE_USER = "_dynamo/variables/"


class Register:
    """Who is answered and who gets the truth, by the calling file; and the count of answers per place."""

    def __init__(self, translator: Translator) -> None:
        self.translator = translator
        self.ledger: Ledger[Simulated] = Ledger()
        self.places: dict[Key, Iterator[int]] = {}
        self.target = ""
        self._truthful: dict[str, bool] = {}

    def answers(self, row: Row, path: str, frame: FrameType) -> Iterator[int] | None:
        """A counter of answers for this place, or None where the original is due."""
        if not self.translator.in_force:
            return None
        code = frame.f_code
        if row.truth and self._gets_truth(code.co_filename):
            return None
        if self.translator.roles[code.co_filename].inner:
            return _UNCOUNTED
        key = (id(code), frame.f_lasti, path)
        counter = self.ledger.counter(key)
        if counter is None:
            record = Simulated(path, row.kind.value, self.target, Site(code.co_filename, frame.f_lineno))
            counter = self.ledger.open(key, code, record)
        self.places[key] = counter
        return counter

    def _gets_truth(self, filename: str) -> bool:
        known = self._truthful.get(filename)
        if known is None:
            known = self._truthful[filename] = self._reads_as_truthful(filename)
        return known

    def _reads_as_truthful(self, filename: str) -> bool:
        parts = filename.replace(os.sep, "/").split("/")
        for folder, package in itertools.pairwise(parts):
            if folder in ("site-packages", "dist-packages") and package.removesuffix(".py") in TRUTH_PACKAGES:
                return True
        return self.translator.roles[filename].inner and _ASKS_FOR_THE_USER not in filename.replace(os.sep, "/")


class Masquerade:
    """One namespace, answered by one target."""

    def __init__(self, kind: str, target: Target, register: Register) -> None:
        self._kind = kind
        self._target = target
        self._register = register
        self.missing: list[str] = []
        names = module_names(kind, tuple(SUBMODULES[kind]))
        shadowed = (*names, "torch.nn.parallel.comm") if kind == "cuda" else names
        self._modules: dict[str, ModuleType] = {name: importlib.import_module(name) for name in names}
        self.shadow = self._make_shadow(shadowed)

    def _make_shadow(self, modules: tuple[str, ...]) -> Shadow:
        kind, target = self._kind, self._target
        read_index = device.index_reader(target)

        def construct(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            made = RealDevice(*args, **kwargs)
            if made.index is None or made.index < target.count:
                return made
            return RealDevice(made.type, read_index(made))

        extra = {"device": stand_in(RealDevice, construct), "backends": _BACKENDS}
        if kind == "mps":
            return Shadow(kind, modules, metal.functions(target), {}, metal.names(target), extra)
        lent = streams.Streams(target)
        table = {
            **device.device_functions(kind, target),
            **memory.memory_functions(kind, target),
            **streams.stream_functions(kind, lent),
            **graphs.graph_functions(kind),
            **libraries.nccl_functions(),
            **libraries.comm_functions(),
            **libraries.tunable_functions(),
        }
        replaced = {
            **device.device_globals(kind, target, table),
            **random.random_globals(kind, target),
            **vitals.functions(target),
            "_cudart": libraries.cudart(target),
            "_nvtx": libraries.nvtx(),
            "reduce_add": libraries.reduce_add,
            "amp_definitely_not_available": device.constant(False),
        }
        handles = {"cuda": ("cuda_stream", "cuda_event"), "xpu": ("sycl_queue", "sycl_event")}[kind]
        graph = "CUDAGraph" if kind == "cuda" else "XPUGraph"
        bases = {
            "Stream": streams.stream_base(lent, handles[0]),
            "Event": streams.event_base(lent, handles[1]),
            graph: graphs.graph_base(graph),
            "MemPool": memory.MemPoolBase,
        }
        return Shadow(kind, modules, table, bases, replaced, extra)

    def replacements(self) -> list[Replacement]:
        """Every place of the namespace that a row replaces."""
        made: list[Replacement] = []
        for row in SURFACE[self._kind]:
            if row.left:
                continue
            home, name = self._home(row)
            if home is None:
                self.missing.append(f"torch.{self._kind}.{row.name}")
                continue
            original = getattr(self._modules[home], name)
            value = self._value(row, home, name, original)
            for module_name, module in self._modules.items():
                if vars(module).get(name) is original and (module_name == home or _is_public(module, name)):
                    made.append(Replacement(f"{module_name}.{name}", module, name, value))
        return made

    def _home(self, row: Row) -> tuple[str | None, str]:
        folder, _, name = row.name.rpartition(".")
        home = f"torch.{self._kind}.{folder}" if folder else f"torch.{self._kind}"
        module = self._modules.get(home)
        return (home if module is not None and hasattr(module, name) else None), name

    def _value(self, row: Row, home: str, name: str, original: Any) -> Any:
        path = f"{home}.{name}"
        if row.kind is Kind.UNSUPPORTED:
            return self._refusal(row, path, original)
        answer = self.shadow.globals[home][name] if home in self.shadow.globals else self.shadow.copy(original)
        if isinstance(original, type) or not callable(original):
            return answer
        return self._answering(row, path, original, answer)

    def _answering(self, row: Row, path: str, original: Any, answer: Any) -> Any:
        register, places = self._register, self._register.places

        def call(*args: Any, **kwargs: Any) -> Any:
            frame = _getframe(1)
            counter = places.get((id(frame.f_code), frame.f_lasti, path))
            if counter is None or register.translator.suspensions:
                counter = register.answers(row, path, frame)
                if counter is None:
                    return original(*args, **kwargs)
            next(counter)
            return answer(*args, **kwargs)

        return dress(call, original, path)

    def _refusal(self, row: Row, path: str, original: Any) -> Any:
        register = self._register

        def refuse(*args: Any, **kwargs: Any) -> Any:
            frame = _getframe(1)
            if isinstance(original, type):
                frame = _getframe(2)
            counter = register.answers(row, path, frame)
            if counter is None:
                return original(*args, **kwargs)
            next(counter)
            raise CudaOnlyError(
                explain_error(
                    f"{path} was asked for",
                    f"the device here is {register.target}: {ANSWERS[row.answer].cpu.partition(': ')[2]}",
                    "guard this call, use the portable operators of torch, or run it on the hardware that it needs",
                )
            )

        if isinstance(original, type):
            return stand_in(original, lambda args, kwargs: refuse(*args, **kwargs))
        return dress(refuse, original, path)


_BACKENDS = type("backends", (), {kind: type(kind, (), {"is_built": staticmethod(lambda: True)}) for kind in SURFACE})


def _is_public(module: ModuleType, name: str) -> bool:
    return name in getattr(module, "__all__", ()) or (not hasattr(module, "__all__") and not name.startswith("_"))


class Masquerades:
    """All namespaces that a host lacks. Built when first needed, kept for the process."""

    def __init__(self, translator: Translator) -> None:
        self.register = Register(translator)
        self._built: dict[Host, list[Replacement]] = {}
        self.missing: list[str] = []

    def select(self, host: Host) -> list[Replacement]:
        """What to apply on a host."""
        self.register.target = host.type
        self.register.places.clear()
        if host not in self._built:
            self._built[host] = self._build(host)
        return self._built[host]

    def _build(self, host: Host) -> list[Replacement]:
        target = target_of(host)
        made: list[Replacement] = []
        for kind in SURFACE:
            if kind != host.type and hasattr(torch, kind):
                masquerade = Masquerade(kind, target, self.register)
                made += masquerade.replacements()
                self.missing += masquerade.missing
        return made

    def stop(self) -> None:
        """Answer nobody any more, also through names that user code has kept."""
        self.register.places.clear()
