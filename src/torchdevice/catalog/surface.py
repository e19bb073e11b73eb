"""Finds the public names of the installed torch by walking its modules.

A module is public if no part of its name starts with an underscore and no row of `LEFT_OUT` covers it. A name is public
if its module lists it in `__all__`. In a module without `__all__` a name is public if it has no underscore and is
defined there. torch's overridable functions with public names count even if `__all__` omits them. Entries are
functions, classes, the settings of `torch.backends`, and the public methods and properties that a class defines or
inherits from a private base. An object with several public names is one entry under the shortest; the others are
aliases.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import pkgutil
import types
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from torchdevice._torch import core

FUNCTION, CLASS, METHOD, PROPERTY, SETTING = "function", "class", "method", "property", "setting"

# Packages below torch, walked with everything public inside.
ROOTS = [
    "nn",
    "optim",
    "autograd",
    "cuda",
    "mps",
    "xpu",
    "cpu",
    "accelerator",
    "amp",
    "backends",
    "distributed",
    "distributions",
    "fft",
    "linalg",
    "special",
    "sparse",
    "nested",
    "random",
    "utils",
    "jit",
    "compiler",
    "export",
    "fx",
    "func",
    "profiler",
    "hub",
    "serialization",
    "storage",
    "signal",
    "masked",
    "library",
    "overrides",
    "futures",
    "multiprocessing",
]
# Subtrees with public names that are not an API for users of torch, and why.
LEFT_OUT = {
    "torch.fx.experimental": "internals of torch.export and the compiler",
    "torch.fx.passes": "internals of torch's compilers",
    "torch.fx.config": "settings of torch's compilers",
    "torch.utils.hipify": "torch's own build",
    "torch.utils.benchmark.examples": "programs",
    "torch.utils.benchmark.op_fuzzers": "torch's own benchmarks",
    "torch.utils.benchmark.utils.compile": "prints when it is imported without tabulate",
    "torch.utils.benchmark.utils.cpp_jit": "builds C++ for torch.utils.benchmark",
    "torch.utils.data.datapipes": "deprecated; removed from torch's documentation",
    "torch.utils.tensorboard": "needs tensorboard",
    "torch.utils.model_dump": "a program",
    "torch.utils.viz": "torch's own debugging",
    "torch.utils.serialization": "settings of torch.save",
    "torch.distributed.elastic": "the agent behind torchrun: starts processes, holds no tensor",
    "torch.distributed.flight_recorder": "a program",
    "torch.distributed.launcher": "torchrun",
    "torch.distributed.launch": "torchrun",
    "torch.distributed.run": "torchrun",
    "torch.distributed.argparse_util": "torchrun",
    "torch.distributed.debug": "a server for debugging",
    "torch.nn.quantized": "moved to torch.ao",
    "torch.nn.intrinsic": "moved to torch.ao",
    "torch.nn.qat": "moved to torch.ao",
    "torch.nn.quantizable": "moved to torch.ao",
    "torch.nn.cpp": "for C++ extensions",
    "torch.jit.quantized": "moved to torch.ao",
    "torch.jit.frontend": "the parser behind torch.jit.script",
    "torch.jit.annotations": "the parser behind torch.jit.script",
    "torch.backends.xeon": "a program",
    "torch.multiprocessing.reductions": "how tensors are pickled between processes",
    "torch.multiprocessing.queue": "Python's own queue",
    "torch.multiprocessing.pool": "Python's own pool",
    "torch.fx.proxy": "internals of symbolic tracing",
    "torch.fx.traceback": "internals of torch's compilers",
    "torch.fx.operator_schemas": "internals of symbolic tracing",
    "torch.fx.tensor_type": "gradual types, an experiment",
    "torch.fx.immutable_collections": "internals of symbolic tracing",
    "torch.utils.collect_env": "a program",
    "torch.utils.show_pickle": "a program",
    "torch.utils.jit": "torch's own debugging",
    "torch.utils.debug_log": "torch's own debugging",
    "torch.utils.file_baton": "internals of torch.utils.cpp_extension",
    "torch.utils.backcompat": "warnings of Torch 0.2",
    "torch.utils.bundled_inputs": "PyTorch Mobile, ended",
    "torch.utils.mobile_optimizer": "PyTorch Mobile, ended",
    "torch.export.pt2_archive": "the file format behind torch.export.save",
    "torch.jit.generate_bytecode": "torch's own build",
    "torch.jit.supported_ops": "a documentation page",
    "torch.jit.unsupported_tensor_ops": "a documentation page",
    "torch.jit.mobile": "PyTorch Mobile, ended",
    "torch.distributed.rpc": "torch.distributed.rpc is in maintenance mode: remote calls between processes",
    "torch.distributed.nn": "undocumented; remote modules of torch.distributed.rpc",
    "torch.distributed.autograd": "remote gradients of torch.distributed.rpc",
}


@dataclass
class Found:
    """One public object: its shortest name, its other names, its kind."""

    name: str
    kind: str
    value: Any
    owner: str = ""
    aliases: list[str] = field(default_factory=list)


@dataclass
class Surface:
    """Everything that was found, and the modules that could not be read, with the reason."""

    found: dict[str, Found]
    unread: dict[str, str]


def read_surface() -> Surface:
    """Walk the installed torch. Imports its public modules, which takes a few seconds."""
    unread: dict[str, str] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        modules = dict(_modules(unread))
        named = _named(modules)
        found = _canonical(named)
        for each in list(found.values()):
            if each.kind == CLASS:
                for member in _members(each, found):
                    found.setdefault(member.name, member)
        found.update({each.name: each for each in _settings(modules)})
    return Surface(dict(sorted(found.items())), unread)


def is_left_out(module: str) -> bool:
    """Whether a row of `LEFT_OUT` covers a module."""
    return any(module == prefix or module.startswith(f"{prefix}.") for prefix in LEFT_OUT)


def _modules(unread: dict[str, str]) -> Iterator[tuple[str, Any]]:
    yield "torch", torch
    for root in ROOTS:
        yield from _walk(f"torch.{root}", unread)


def _walk(name: str, unread: dict[str, str]) -> Iterator[tuple[str, Any]]:
    try:
        module = importlib.import_module(name)
    except ImportError as error:  # a module for a package or a platform that is not available
        unread[name] = str(error)
        return
    yield name, module
    for info in pkgutil.iter_modules(getattr(module, "__path__", ())):
        inner = f"{name}.{info.name}"
        if not info.name.startswith("_") and not is_left_out(inner):
            yield from _walk(inner, unread)


def _named(modules: dict[str, Any]) -> dict[str, Any]:
    """Every public name with its object."""
    named: dict[str, Any] = {}
    for path, module in modules.items():
        listed = getattr(module, "__all__", None)
        for name in listed if listed is not None else vars(module):
            value = getattr(module, name, None)
            if name.startswith("_") or not _counts(value) or _is_binding(value, path):
                continue
            if listed is not None or _defined_in(value, path):
                named[f"{path}.{name}"] = value
    for path, functions in core.overridable_functions().items():
        for name in functions:
            value = getattr(modules.get(path), name, None)
            if path in modules and not name.startswith("_") and _counts(value):
                named.setdefault(f"{path}.{name}", value)
    public = {id(value) for value in named.values()}
    for path, module in modules.items():  # a package that only imports what its submodules list
        if not hasattr(module, "__all__"):
            for name, value in vars(module).items():
                if not name.startswith("_") and _counts(value) and id(value) in public:
                    named.setdefault(f"{path}.{name}", value)
    return named


def _counts(value: Any) -> bool:
    if isinstance(value, type):
        return True
    of_torch = str(getattr(value, "__module__", None) or "torch").startswith("torch")
    plain = (types.ModuleType, types.GenericAlias, torch.Tensor, torch.dtype, enum.Enum)
    return callable(value) and of_torch and not isinstance(value, plain) and hasattr(value, "__name__")


def _is_binding(value: Any, path: str) -> bool:
    """Whether it is a C++ binding class, which `torch.__all__` lists with all of `torch._C`, or a foreign class."""
    if not isinstance(value, type):
        return False
    home = str(value.__module__)
    return not home.startswith("torch") or (path == "torch" and type(value).__name__ == "pybind11_type")


def _defined_in(value: Any, path: str) -> bool:
    home = str(getattr(value, "__module__", None) or "torch._C")
    return home == path or (home.startswith("torch._C") and not isinstance(value, type))


def _canonical(named: dict[str, Any]) -> dict[str, Found]:
    names: dict[int, list[str]] = {}
    for name, value in named.items():
        names.setdefault(id(value), []).append(name)
    found = {}
    for same in names.values():
        first, *others = sorted(same, key=lambda name: (name.count("."), len(name), name))
        value = named[first]
        kind = CLASS if isinstance(value, type) else FUNCTION
        found[first] = Found(first, kind, value, aliases=others)
    return found


def _members(owner: Found, found: dict[str, Found]) -> Iterator[Found]:
    """The public members that a class or a private base of it defines."""
    if isinstance(owner.value, core.LEGACY_TENSOR_METACLASS) or issubclass(owner.value, enum.Enum):
        return
    public = {id(each.value) for each in found.values() if each.kind == CLASS}
    fields = set(getattr(owner.value, "_fields", ())) | set(getattr(owner.value, "__dataclass_fields__", ()))
    seen: set[str] = set()
    for base in owner.value.__mro__:
        if base is not owner.value and (id(base) in public or not str(base.__module__).startswith("torch")):
            if owner.name != "torch.Tensor":
                break
            continue
        for name, value in vars(base).items():
            if name.startswith("_") or name in seen or name in fields or isinstance(value, type):
                continue
            seen.add(name)
            if isinstance(value, property) or inspect.isdatadescriptor(value):
                yield Found(f"{owner.name}.{name}", PROPERTY, value, owner.name)
            elif callable(value) or isinstance(value, (classmethod, staticmethod)):
                yield Found(f"{owner.name}.{name}", METHOD, value, owner.name)


def _settings(modules: dict[str, Any]) -> Iterator[Found]:
    """Settings such as `torch.backends.cudnn.benchmark`: attributes of modules that have a class of their own."""
    for path, module in modules.items():
        if type(module) is not types.ModuleType and path.startswith("torch.backends."):
            for name, value in vars(type(module)).items():
                if not name.startswith("_") and inspect.isdatadescriptor(value):
                    yield Found(f"{path}.{name}", SETTING, value, path)
