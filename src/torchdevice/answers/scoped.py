"""Makes replacements from rows. `audience` decides which callers get the originals, and counts calls.

There is one `Masquerade` per namespace that the host lacks. It is built once per process. `session` applies its
replacements.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch

from torchdevice import twins
from torchdevice._torch import compilers, core, imports
from torchdevice._torch.core import RealDevice
from torchdevice.answers import (
    accelerator,
    comm,
    devices,
    failures,
    lightning,
    memory,
    mps,
    outside,
    precision,
    products,
    random,
)
from torchdevice.answers.audience import Audience
from torchdevice.answers.device import constant
from torchdevice.answers.real import Cpu, Real, target_of
from torchdevice.answers.rows import ANSWERS, SUBMODULES, SURFACE, Kind, Row
from torchdevice.answers.shadow import Shadow, module_names
from torchdevice.answers.table import answers
from torchdevice.errors import CudaOnlyError, explain_error
from torchdevice.policy.hosts import Host
from torchdevice.translate.classes import stand_in
from torchdevice.translate.engine import Replacement, apply, dress
from torchdevice.translate.points import Skip, resolve_path
from torchdevice.translate.translator import Translator

_getframe = sys._getframe

# torch.cuda.comm is another name of this module and is loaded on demand. DataParallel calls the functions by this name.
COMM = "torch.nn.parallel.comm"


class Masquerade:
    """One namespace, implemented by one target."""

    def __init__(self, kind: str, target: Real, audience: Audience) -> None:
        self._kind = kind
        self._target = target
        self._audience = audience
        self.skips: list[Skip] = []
        names = module_names(kind, SUBMODULES[kind])
        if kind == "cuda":
            names = (*names, COMM)
        self._modules = {name: sys.modules[name] for name in names}
        self.shadow = self._make_shadow(names)

    def _make_shadow(self, modules: tuple[str, ...]) -> Shadow:
        kind, target = self._kind, self._target
        read_index = devices.index_reader(target)

        def construct(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            made = RealDevice(*args, **kwargs)
            if made.index is None or made.index < target.count:
                return made
            return RealDevice(made.type, read_index(made))

        extra = {"device": stand_in(RealDevice, "torch.device", construct), "backends": _BACKENDS}
        table = answers(kind, target, self._noting)
        if kind == "mps":
            return Shadow(kind, modules, table.functions, table.bases, mps.mps_names(), extra)
        replaced = {
            **table.names,
            **devices.initialised_names(target),
            **memory.single_figures(target, read_index),
            **random.random_names(kind, target),
            "reduce_add": comm.reduce_add,
            "amp_definitely_not_available": constant(False),
        }
        return Shadow(kind, modules, table.functions, table.bases, replaced, extra)

    def _noting(self, name: str) -> Callable[[], None]:
        """The function that a class calls when user code makes an object of it."""
        path = f"torch.{self._kind}.{name}"
        row = next((row for row in SURFACE[self._kind] if row.name == name), Row(name, Kind.SIMULATED, "stream"))
        return lambda: self._audience.note(row, path)

    def replacements(self) -> list[Replacement]:
        """The replacements for every name of the namespace that has a row."""
        made: list[Replacement] = []
        for row in SURFACE[self._kind]:
            home, name = self._home(row)
            if home is None:
                self.skips.append(Skip(f"torch.{self._kind}.{row.name}", f"torch {torch.__version__} has no such name"))
                continue
            if row.left:
                continue
            original = getattr(self._modules[home], name)
            if original and not callable(original) and not isinstance(original, ModuleType):
                continue  # torch has set the value: the host has the device, but it is not the target
            value = self._value(row, home, name, original)
            for module_name, module in self._modules.items():
                if vars(module).get(name) is original and (module_name == home or _is_public(module, name)):
                    made.append(Replacement(f"{module_name}.{name}", module, name, value))
        return made

    def _home(self, row: Row) -> tuple[str | None, str]:
        folder, _, name = row.name.rpartition(".")
        home = f"torch.{self._kind}.{folder}" if folder else f"torch.{self._kind}"
        if folder == "comm":
            home = COMM
        module = self._modules.get(home)
        return (home if module is not None and hasattr(module, name) else None), name

    def _value(self, row: Row, home: str, name: str, original: Any) -> Any:
        path = f"{home}.{name}"
        if row.kind is Kind.UNSUPPORTED:
            return self._refusal(row, path, original)
        answer = self.shadow.globals[home][name]
        if isinstance(original, type) or not callable(original):
            return answer
        if name == "is_initialized":
            answer = self._in_use
        if name in devices.DESCRIBING:
            answer = devices.refusing_numbers(answer, self._target, devices.DESCRIBING[name])
        return self._audience.answering(row, path, original, answer)

    def _in_use(self) -> bool:
        """Whether a real device of this type would be initialized now.

        A `torch.device` of the type is one of the target, and its use cannot be seen: memory of the target tells.
        """
        target, translator = self._target, self._audience.translator
        if target.begun or self._kind in translator.used:
            return True
        return self._kind in translator.named and any(map(target.allocated, range(target.count)))

    def _refusal(self, row: Row, path: str, original: Any) -> Any:
        audience = self._audience

        def refuse(*args: Any, **kwargs: Any) -> Any:
            frame = _getframe(1)
            if isinstance(original, type):
                frame = _getframe(2)
            counter = audience.answers(row, path, frame)
            if counter is None:
                return original(*args, **kwargs)
            next(counter)
            raise CudaOnlyError(
                explain_error(
                    f"{path} was called",
                    f"the device here is {audience.target}: {ANSWERS[row.answer].cpu.partition(': ')[2]}",
                    "call it only on the hardware that it needs, or use portable operators of torch",
                )
            )

        if isinstance(original, type):
            makers: dict[str, Any] = {name: staticmethod(refuse) for name in vars(original) if not name.startswith("_")}
            with contextlib.suppress(ValueError):  # in a torch built with CUDA, some C classes have no signature
                makers["__signature__"] = inspect.signature(original)
            return stand_in(original, path, lambda args, kwargs: refuse(*args, **kwargs), **makers)
        return dress(refuse, original, path)


_BACKENDS = type("backends", (), {kind: type(kind, (), {"is_built": staticmethod(lambda: True)}) for kind in SURFACE})


def _is_public(module: ModuleType, name: str) -> bool:
    return name in getattr(module, "__all__", ()) or (not hasattr(module, "__all__") and not name.startswith("_"))


def _completed(module: Any, cuda: list[Replacement]) -> list[Replacement]:
    """Names of torch.cuda that the target's own module lacks, for code that uses `getattr(torch, x.device.type)`."""
    made = [
        Replacement(f"{module.__name__}.{each.name}", module, each.name, _ALREADY.get(each.name, each.value))
        for each in cuda
        if each.owner is torch.cuda and not each.name.startswith("_") and not hasattr(module, each.name)
    ]
    if module is torch.cpu:
        missing = {name: value for name, value in _STREAM.items() if not hasattr(torch.cpu.Stream, name)}
        made += [Replacement(f"torch.cpu.Stream.{name}", torch.cpu.Stream, name, missing[name]) for name in missing]
    elif not hasattr(module, core.INITIALIZED):
        made.append(Replacement(f"{module.__name__}.{core.INITIALIZED}", module, core.INITIALIZED, True))
    return made


# A device whose module lacks the function needs no initialization.
_ALREADY = {"is_initialized": constant(True)}
# What a stream of the CPU answers. torch's own class has other methods of streams, which do nothing either.
_STREAM: dict[str, Any] = {"synchronize": lambda self: None, "query": lambda self: True}


@dataclass(frozen=True)
class _Built:
    """The replacements for one host with one number of devices. One device object implements all of them."""

    host: Host
    target: Real
    replacements: list[Replacement]
    failures: failures.Failures | None  # None if the host has CUDA

    @functools.cached_property
    def classes(self) -> dict[type, str]:
        """The classes among the replacements, and the names that they replace."""
        return {each.value: each.name for each in self.replacements if isinstance(each.value, type)}


class Masquerades:
    """All namespaces that a host lacks. Built on first use and kept until the process ends."""

    def __init__(self, translator: Translator) -> None:
        self.audience = Audience(translator)
        self._built: dict[tuple[Host, int], _Built] = {}
        self._selected: _Built | None = None
        self.skips: list[Skip] = []

    def select(self, host: Host, told: int = 1) -> list[Replacement]:
        """The replacements for a host. `told`: the number of devices that code sees on a host with at most one."""
        self.audience.target = host.type
        self.audience.ledger.forget_places()
        if (host, told) not in self._built:
            self._built[host, told] = self._build(host, told)
        self._selected = self._built[host, told]
        return self._selected.replacements

    def _build(self, host: Host, told: int) -> _Built:
        target = target_of(host, told)
        made: list[Replacement] = []
        for kind in SURFACE:
            if kind != host.type and hasattr(torch, kind):
                masquerade = Masquerade(kind, target, self.audience)
                made += masquerade.replacements()
                self.skips += masquerade.skips
                if kind == "cuda":
                    made += _completed(getattr(torch, host.type), made)
                    if host.type == "cpu":
                        made += accelerator.replacements(masquerade.shadow.globals["torch.cuda"], self.audience)
        if host.type == "cuda":
            return _Built(host, target, made, None)
        made += outside.replacements(outside.OUTSIDE, self.audience, resolve_path)
        for each in made:
            if hasattr(each.value, "__wrapped__"):
                compilers.register_script_builtin(each.value, each.value.__wrapped__)
        return _Built(host, target, made, failures.Failures(self.audience, target))

    def _leave_classes_untraced(self, selected: _Built) -> Callable[[], object]:
        """For torch's compiler, the classes that replace its own are code of the program: contexts, streams, events."""
        classes = [*selected.classes, *map(resolve_path, self.ordered)]
        # With one device, choosing it changes nothing.
        is_only_one = selected.target.count == 1
        chosen = [each for each, name in selected.classes.items() if name == "device" and is_only_one]
        return compilers.leave_classes_untraced(classes, dict.fromkeys(chosen, twins.no_context))

    @property
    def ordered(self) -> dict[str, Any]:
        """The classes that replace torch.Stream and torch.Event while the selected replacements are applied."""
        on_cpu = self._selected is not None and self._selected.host.type == "cpu"
        return {"torch.Stream": torch.cuda.Stream, "torch.Event": torch.cuda.Event} if on_cpu else {}

    @property
    def failure_of(self) -> Callable[[BaseException], BaseException | None] | None:
        """The function that converts errors of the selected host to CUDA's; None if the host has CUDA."""
        known = self._selected.failures if self._selected is not None else None
        return known.mapped if known is not None else None

    def apply(self) -> Iterator[Callable[[], object]]:
        """Apply what is not an attribute of torch: kernels, and modules that load later. Each step yields its undo."""
        selected = self._selected
        assert selected is not None
        yield compilers.when_dynamo_is_imported(functools.partial(self._leave_classes_untraced, selected))
        yield self.audience.ledger.forget_places  # end all replacements, also through names that user code has bound
        later = lightning.REGISTRIES_LATER
        if isinstance(selected.target, Cpu):
            yield selected.target.apply_limit()
            yield precision.apply_to_norms()
            yield products.apply_to_cpu()
            yield precision.apply()
        if selected.failures is not None:
            yield selected.failures.apply()
            later += outside.LATER + lightning.CHECKS_LATER
        for module, name, rows in later:
            yield imports.when_imported(module, name, functools.partial(self._replaced, rows))

    def _replaced(self, rows: tuple[outside.OutsideRow, ...]) -> Callable[[], object]:
        return apply(outside.replacements(rows, self.audience, resolve_path)).undo
