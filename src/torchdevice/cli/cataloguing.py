"""Gathers what the catalogue needs from the mechanisms: their tables as plain data. Only this file sees them all."""

from __future__ import annotations

import inspect
import os
from collections.abc import Sequence
from typing import Any

import torch

import torchdevice
from torchdevice.catalog.entries import Entry, build
from torchdevice.catalog.store import load_notes, load_results
from torchdevice.catalog.surface import Surface, read_surface
from torchdevice.catalog.treatment import FALLBACK, PASSTHROUGH, SIMULATED, TRANSLATED, UNSUPPORTED, Patched, Tables
from torchdevice.cuda import agnostic, neighbours
from torchdevice.cuda.neighbours import BUILDERS, NEIGHBOURS
from torchdevice.cuda.surface import ANSWERS, SURFACE, Kind
from torchdevice.fallback.mlx import executor as mlx
from torchdevice.patching import adapters, movers
from torchdevice.patching.engine import Replacement
from torchdevice.patching.points import Replacements, all_points, resolve_path
from torchdevice.patching.translator import Translator
from torchdevice.session import original, redirect, status
from torchdevice.virtual import matrix

KINDS = {
    Kind.MAPPED: TRANSLATED,
    Kind.SIMULATED: SIMULATED,
    Kind.NO_OP: SIMULATED,
    Kind.UNSUPPORTED: UNSUPPORTED,
}
MAKING = frozenset(each.__name__ for each in (adapters.fresh_tensor, adapters.tensor_like))
MOVING = frozenset(each.__name__ for each in (movers.convert_to, movers.move_to_cpu, movers.move_to_accelerator))
_ANSWERING = {
    "cuda": "torchdevice.cuda.masquerade",
    "xpu": "torchdevice.cuda.masquerade",
    "mps": "torchdevice.cuda.metal",
}
_PACKAGE = os.path.dirname(torchdevice.__file__) + os.sep
_COMPOSITES = ("CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")


def catalogue() -> tuple[list[Entry], Surface]:
    """The rows of the installed torch. Nothing may be active: the tables are read from torch's own objects."""
    surface = read_surface()
    return build(surface, gather(), load_results(), load_notes()), surface


def gather() -> Tables:
    """The running tables, as data."""
    return Tables(
        patched=_patched(),
        answers=_answers(),
        kernels=_kernels(),
        rules=frozenset(mlx.rules()) if mlx.installed() else frozenset(),
        making=MAKING,
        moving=MOVING,
    )


def _patched() -> dict[int, Patched]:
    """What an activation replaces, by the identity of torch's own object: on the CPU, and rows for other hosts."""
    how = {point.path: point.adapter.__name__ for point in all_points()}
    places = {each.path: (getattr(each.owner, each.name, None), each.value) for each in _elsewhere()}
    with redirect(target="cpu"):
        places |= {path: (original(path), resolve_path(path)) for path in status().patched}
    found: dict[int, Patched] = {}
    for path, (before, value) in places.items():
        if before is not None:
            holder, _, last = path.rpartition(".")
            subject = resolve_path(holder) if last in ("__init__", "__new__") else before
            expected = _signature(before)
            same = expected is None or _signature(_function(value)) == expected
            found.setdefault(id(subject), Patched(path, how.get(path) or _maker(value), same))
    return found


def _maker(value: Any) -> str:
    """For replacements that are no point: the masquerade's, or the module of ours that wrote them."""
    module = _home(value)
    return "masquerade" if module.startswith(("cuda.", "torch")) else module


def _home(value: Any) -> str:
    """The module that a function's code stands in, below our package; its own word where it has no code."""
    code = getattr(inspect.unwrap(_function(value), stop=_is_ours), "__code__", None)
    if code is None or not code.co_filename.startswith(_PACKAGE):
        return str(getattr(value, "__module__", "torch"))
    return code.co_filename.removeprefix(_PACKAGE).removesuffix(".py").replace(os.sep, ".")


def _is_ours(value: Any) -> bool:
    return getattr(value, "__code__", _is_ours.__code__).co_filename.startswith(_PACKAGE)


def _elsewhere() -> list[Replacement]:
    """What is replaced where there is an accelerator, and where it lacks dtypes: made, not applied."""
    return Replacements(Translator()).select(filling=True, narrowing=True)


def _function(value: Any) -> Any:
    return value.__func__ if isinstance(value, staticmethod) else value


def _signature(value: Any) -> Any:
    try:
        return inspect.signature(value)
    except (TypeError, ValueError):  # functions and classes of C have none: there is nothing to be equal to
        return None


def _answers() -> dict[str, tuple[str, str]]:
    rows = {
        f"torch.{space}.{row.name}": (KINDS[row.kind], ANSWERS[row.answer].cpu)
        for space, table in SURFACE.items()
        for row in table
    }
    rows |= {row.path: (KINDS[row.kind], row.answer) for row in (*NEIGHBOURS, *BUILDERS)}
    return rows | {path: (KINDS[Kind.SIMULATED], answer) for path, answer in agnostic.WORDS.items()}


def _kernels() -> dict[str, frozenset[str]]:
    """Operator → the devices for which torch's own table lists a kernel or a composite."""
    backends = {"cpu": matrix.supported("CPU"), "cuda": matrix.supported("CUDA"), "mps": matrix.supported("MPS")}
    found = {}
    for name, operator in matrix.operators().items():
        everywhere = not operator.dispatch and not operator.delegate
        everywhere = everywhere or any(key in operator.dispatch for key in _COMPOSITES)
        found[name] = frozenset(device for device, names in backends.items() if everywhere or name in names)
    return found


def answering_modules(entries: Sequence[Entry]) -> dict[str, str]:
    """Which module of ours answers for a name: the one whose code its treatment runs. Names that pass have none."""
    adapters_of = {point.path: point.adapter.__module__ for point in all_points()}
    rows_of = dict.fromkeys(agnostic.WORDS, agnostic.__name__)
    rows_of |= dict.fromkeys((row.path for row in (*NEIGHBOURS, *BUILDERS)), neighbours.__name__)
    with redirect(target="cpu"):
        written = {path: f"torchdevice.{_home(resolve_path(path))}" for path in status().patched}
    found = {}
    for entry in entries:
        path = entry.how.partition(" by ")[0]
        if path in adapters_of:
            found[entry.name] = adapters_of[path]
        elif entry.treatment == FALLBACK:
            found[entry.name] = "torchdevice.fallback"
        elif entry.treatment != PASSTHROUGH:
            by_row = rows_of.get(entry.name) or rows_of.get(path) or _ANSWERING.get(entry.name.split(".")[1])
            found[entry.name] = by_row or written[path]
    return found


def torch_version() -> str:
    """For headings."""
    return str(torch.__version__)
