"""The table against the installed torch, by enumeration: every name has a row, replacements look like torch's own."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import sys
import types
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.cuda.comm

import torchdevice
from tests.virtual.harness import run_python
from tools.docs import masquerade
from torchdevice.answers.audience import Audience
from torchdevice.answers.real import target_of
from torchdevice.answers.rows import ANSWERS, SUBMODULES, SURFACE, Kind
from torchdevice.answers.scoped import COMM, Masquerade
from torchdevice.answers.shadow import module_names
from torchdevice.policy.hosts import Host
from torchdevice.session import session
from torchdevice.translate.translator import Translator

KINDS = tuple(SURFACE)


def public_names(kind: str) -> Iterator[tuple[str, str, Any]]:
    """Module, name and object of everything public in a namespace: what `__all__` lists and what is defined there."""
    root = f"torch.{kind}"
    for path in module_names(kind, SUBMODULES[kind]):
        module = importlib.import_module(path)
        listed = set(getattr(module, "__all__", ()))
        for name, value in vars(module).items():
            defined = str(getattr(value, "__module__", "")).startswith(root) or not hasattr(value, "__module__")
            if isinstance(value, types.ModuleType) or name.startswith("_"):
                continue
            if name in listed or (defined and not isinstance(value, bool) and name != "TYPE_CHECKING"):
                yield path, name, value


def row_names(kind: str) -> set[str]:
    return {row.name for row in SURFACE[kind]}


@pytest.mark.parametrize("kind", KINDS)
def test_every_public_name_has_a_row(kind: str) -> None:
    root, rows = f"torch.{kind}", row_names(kind)
    missing = []
    for path, name, value in public_names(kind):
        own = f"{path}.{name}".removeprefix(f"{root}.")
        shared = name in rows and getattr(getattr(torch, kind), name, None) is value
        elsewhere = any(row.endswith(f".{name}") for row in rows) and not str(value.__class__).startswith("<class 'fun")
        if own not in rows and not shared and not elsewhere:
            missing.append(f"{path}.{name}")
    assert missing == []


@pytest.mark.parametrize("kind", KINDS)
def test_every_public_submodule_is_read(kind: str) -> None:
    """Of those that torch loads by itself: the others are loaded by code that names them."""
    package = getattr(torch, kind)
    found = {each.name for each in pkgutil.iter_modules(package.__path__) if not each.name.startswith("_")}
    loaded = {name for name in found if f"torch.{kind}.{name}" in sys.modules}
    assert loaded - {"comm"} <= set(SUBMODULES[kind])


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_unique_and_say_what_they_answer(kind: str) -> None:
    names = Counter(row.name for row in SURFACE[kind])
    assert [name for name, count in names.items() if count > 1] == []
    assert {row.answer for row in SURFACE[kind]} <= set(ANSWERS)


def test_every_answer_is_used() -> None:
    assert {row.answer for rows in SURFACE.values() for row in rows} == set(ANSWERS)


def _natives_in(function: Any, seen: set[int]) -> Iterator[str]:
    """Names of torch._C that a function's code, and code inside it, refers to."""
    pending = [function.__code__] if hasattr(function, "__code__") else []
    while pending:
        code = pending.pop()
        if id(code) in seen:
            continue
        seen.add(id(code))
        yield from (name for name in code.co_names if re.match(r"_(cuda|xpu|mps|nccl|nvtx)_[A-Za-z]", name))
        pending += [each for each in code.co_consts if isinstance(each, types.CodeType)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_c_function_under_an_answered_name_is_answered(kind: str) -> None:
    """A new torch may call C functions that no table here has: better found by this test than by a user."""
    masquerade = Masquerade(kind, target_of(Host("cpu")), Audience(Translator()))
    answered = masquerade.shadow.natives
    answering = [row.name for row in SURFACE[kind] if row.kind is not Kind.UNSUPPORTED and not row.left]
    wanted: set[str] = set()
    for name in answering:
        home, _, last = f"torch.{kind}.{name}".rpartition(".")
        home = COMM if home == "torch.cuda.comm" else home
        value = masquerade.shadow.globals.get(home, {}).get(last)
        for member in vars(value).values() if isinstance(value, type) else [value]:
            wanted |= set(_natives_in(member, set()))
    # Of cuda.bindings, a package of its own, which one method asks for.
    assert wanted - set(answered) - {"_cuda_runtime", "_cuda_driver"} == set()


def _replaced() -> list[tuple[str, Any, Any]]:
    assert session._applied is not None
    assert session._masked is not None
    return [(r.path, r.value, session._applied.originals[r.path]) for r in session._masked.select(Host("cpu"))]


# In a build without MPS its base is a stand-in of torch's own, which takes anything.
NO_SIGNATURE = {"torch.mps.Stream", "torch.mps.streams.Stream"}


def test_signatures_names_and_documentation_are_torchs_own(active: None) -> None:
    checked = 0
    for path, value, original in _replaced():
        if original is None or not callable(original) or not hasattr(original, "__name__"):
            continue
        assert value.__name__ == original.__name__, path
        assert value.__doc__ == original.__doc__, path
        of_c = isinstance(original, type) and _signature(original) is None  # a stand-in of such a class may have one
        if path not in NO_SIGNATURE and not of_c:
            assert _signature(value) == _signature(original), path
        assert isinstance(value, type) == isinstance(original, type), path
        checked += 1
    assert checked > 200


def _signature(value: Any) -> Any:
    try:
        return inspect.signature(value)
    except (TypeError, ValueError):  # C functions and dummy classes have none
        return None


def test_methods_of_rebuilt_classes_are_torchs_own(active: None) -> None:
    for name in ("Stream", "Event", "ExternalStream", "CUDAGraph", "graph", "MemPool", "StreamContext", "device"):
        ours, original = getattr(torch.cuda, name), torchdevice.original(f"torch.cuda.{name}")
        assert ours is not original
        assert set(vars(original)) - {"__dict__", "__weakref__"} <= set(vars(ours)), name
        assert (ours.__module__, ours.__qualname__) == (original.__module__, original.__qualname__)


def test_deactivation_restores_every_namespace_by_identity() -> None:
    names = [path for kind in KINDS for path in module_names(kind, SUBMODULES[kind])]
    names += ["torch.cpu", "torch.version", "torch.backends.cuda", "torch.backends.cudnn", "torch.nn.parallel"]
    names += ["torch.nn.parallel.comm", "torch.autograd.profiler", "torch.profiler"]
    modules = [importlib.import_module(name) for name in names]
    before = [dict(vars(module)) for module in modules]
    torchdevice.activate(target="cpu")
    changed = sum(vars(module) != kept for module, kept in zip(modules, before, strict=True))
    torchdevice.deactivate()
    assert changed > 15
    for module, kept in zip(modules, before, strict=True):
        assert vars(module).keys() == kept.keys(), module
        assert [name for name, value in vars(module).items() if value is not kept[name]] == [], module


def test_submodules_and_package_hold_the_same_object(active: None) -> None:
    assert torch.cuda.memory.memory_allocated is torch.cuda.memory_allocated
    assert torch.cuda.random.manual_seed is torch.cuda.manual_seed
    assert torch.cuda.streams.Stream is torch.cuda.Stream
    assert torch.cuda.graphs.CUDAGraph is torch.cuda.CUDAGraph


def test_the_document_is_printed_from_the_table() -> None:
    page = Path(__file__).parents[2] / "docs" / "masquerade.md"
    assert page.read_text(encoding="utf-8") == masquerade.page(), "run: make docs"


def test_activation_is_fast() -> None:
    """Less than 150 ms where `import torch` takes 1.5 s: told by their ratio, which a busy machine leaves alone."""
    code = (
        "import time\nstart = time.process_time()\nimport torch\nloaded = time.process_time()\n"
        "import torchdevice.session as s\nready = time.process_time()\ns.activate(target='cpu')\n"
        "print((time.process_time() - ready) / (loaded - start))"
    )
    best = min(float(run_python("-c", code).stdout) for _ in range(3))
    assert best < 0.1
