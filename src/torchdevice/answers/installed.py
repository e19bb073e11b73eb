"""Installs a table of replacements in torch until the process ends, as if torch had been built for the device.

torch's own Python code of the namespace then runs unchanged. The rows of `BUILDS` list what else such a build has:
flags, classes in C, and names that torch binds when it is imported. An installation cannot be undone.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import torch

from torchdevice._torch import core
from torchdevice._torch.builds import NATIVE, annotate_no_kernels
from torchdevice.answers.device import Device, Table, constant, refusal
from torchdevice.answers.devices import CUDA_VERSION, CUDNN_VERSION, PROPERTIES
from torchdevice.answers.libraries import green_context_names
from torchdevice.answers.table import CLASSES, LEFT_ALONE, answers


@dataclass(frozen=True)
class Build:
    """The properties of a torch build for a device.

    - `flags`: names in torch._C that are not functions.
    - `always`: functions that are installed even if torch has them.
    - `asks_hooks`: torch's own C functions of the namespace exist in every build and call the hooks of our library.
      Only missing functions and those in `always` are installed.
    - `lacking`: names that a build without the device does not have.
    """

    flags: Table
    always: tuple[str, ...] = ()
    asks_hooks: bool = False
    lacking: tuple[str, ...] = ()


BUILDS = {
    "cuda": Build(
        flags={
            "_has_cuda": True,  # torch.backends.cuda.is_built()
            "_has_gds": False,  # torch.cuda.gds.is_available()
            "_has_cudnn": True,  # torch.backends.cudnn.is_available(); the C++ hooks still report False
            # torch._inductor.cudagraph_trees uses the name at import; simulated graphs never make such an object
            "_cuda_CUDAAllocator_AllocatorState": type("_cuda_CUDAAllocator_AllocatorState", (), {}),
        },
        lacking=("_cuda_getDeviceCount",),
    ),
    "xpu": Build(flags={"_has_xpu": True}),
    "mps": Build(flags={"_has_mps": True}, always=("_mps_is_in_bad_fork",), asks_hooks=True),
}


def install(kind: str, device: Device, beneath: str = "cpu") -> None:
    """Make torch present `device` as type `kind`, and hide the type `beneath`, which computes."""
    build, table = BUILDS[kind], answers(kind, device)
    functions = {name: value for name, value in table.functions.items() if callable(value)}
    if build.asks_hooks:
        functions = {
            name: value for name, value in functions.items() if name in build.always or not hasattr(NATIVE, name)
        }
    put(NATIVE, {**named(functions), **build.flags})
    # torch rejects a build with two accelerators, so a build for XPU must not look like one for CUDA.
    _deny(*({"cuda", beneath} if kind == "xpu" else {beneath}) & BUILDS.keys())
    _refuse_what_is_left(kind, functions)
    _answer_what_nobody_knows(kind)
    namespace = getattr(torch, kind)
    _install_classes(kind, namespace, table.bases)
    if kind == "mps":
        forget(torch.backends.mps.is_available, torch.backends.mps.is_macos_or_newer)
        return
    names = {
        **table.names,
        CLASSES[kind].properties: PROPERTIES[kind],
        "_cached_device_count": device.count,  # NVML would also count real GPUs that are hidden
    }
    there = {name: value for name, value in names.items() if name.startswith("_") or hasattr(namespace, name)}
    elsewhere = {"_nvtx", *green_context_names()}
    put(namespace, {name: value for name, value in there.items() if name not in elsewhere})
    namespace.default_generators = tuple(device.generator(index) for index in range(device.count))
    core.renew_initialization_lock_after_fork(kind)
    forget(namespace.device_count)
    if kind == "cuda":
        put(NATIVE, {"_cudart": names["_cudart"], "_nvtx": names["_nvtx"]})
        put(namespace.nvtx, {"_nvtx": names["_nvtx"]})
        annotate_no_kernels()
        if hasattr(namespace, "green_contexts"):  # from 2.10 on
            put(namespace.green_contexts, green_context_names())
        # torch.backends.cudnn is an object of properties around the module.
        put(torch.backends.cudnn.m, {"_init": constant(True), "__cudnn_version": CUDNN_VERSION})
        if torch.version.cuda is None:
            put(torch.version, {"cuda": CUDA_VERSION})


def _deny(*kinds: str) -> None:
    """Make torch look as if it had not been built for these types."""
    for kind in kinds:
        put(NATIVE, {name: False for name, value in BUILDS[kind].flags.items() if value is True})
        for name in BUILDS[kind].lacking:
            if hasattr(NATIVE, name):
                delattr(NATIVE, name)


def _install_classes(kind: str, namespace: Any, bases: Mapping[str, type]) -> None:
    row = CLASSES[kind]
    graph = row.graph.removeprefix("_")
    in_c = {"Stream": row.stream, "Event": row.event, graph: row.graph, "MemPool": row.pool}
    for name, base in bases.items():
        base.__name__ = base.__qualname__ = in_c[name]
        put(NATIVE, {in_c[name]: base})
    if row.properties:
        put(NATIVE, {row.properties: PROPERTIES[kind]})
    homes = {"Stream": "streams", "Event": "streams", graph: "graphs", "MemPool": "memory"}
    for name, base in bases.items():
        # torch.xpu got graphs and pools after 2.9, torch.mps got streams in 2.15.
        former = getattr(getattr(namespace, homes[name], None), name, None)
        if former is not None:
            made = on_base(former, base)
            if name == "Stream" and hasattr(namespace.streams, "ExternalStream"):
                on_base(namespace.streams.ExternalStream, made)


def _refuse_what_is_left(kind: str, answered: Mapping[str, Any]) -> None:
    """Replace remaining functions of a build for the real device: they would call its driver, and some crash."""
    if BUILDS[kind].asks_hooks:
        return
    theirs = re.compile(rf"_{kind}_\w+|_\w*{kind.upper()}\w+")
    left = {
        name: _without_answer(kind, name)
        for name, value in vars(NATIVE).items()
        if theirs.fullmatch(name) and isinstance(value, BuiltinFunctionType) and name not in answered
    }
    put(NATIVE, left)


def _without_answer(kind: str, name: str) -> Callable[..., Any]:
    return refusal(name, f"the virtual {kind} device does not support this function of torch {torch.__version__}")


def _answer_what_nobody_knows(kind: str) -> None:
    """Make functions of a newer torch that have no row raise CudaOnlyError instead of AttributeError."""
    prefix = f"_{kind}_"
    former = vars(NATIVE).get("__getattr__")

    def __getattr__(name: str) -> Any:  # noqa: N807 - Python calls it for names that a module lacks
        if name.startswith(prefix) and name not in LEFT_ALONE:
            return _without_answer(kind, name)
        if former is not None:
            return former(name)
        raise AttributeError(f"module {NATIVE.__name__!r} has no attribute {name!r}")

    vars(NATIVE)["__getattr__"] = __getattr__


def named(table: Table) -> Table:
    """Each function as a separate object with its own name: dynamo hashes functions, and tracebacks show the name."""
    made = {}
    for name, function in table.items():
        if isinstance(function, FunctionType):
            made[name] = FunctionType(
                function.__code__, function.__globals__, name, function.__defaults__, function.__closure__
            )
            made[name].__kwdefaults__ = function.__kwdefaults__
        else:
            made[name] = function
    return made


def put(owner: Any, table: Mapping[str, Any]) -> None:
    """Set each name, also in modules of torch that had bound the former object."""
    for name, value in table.items():
        former = getattr(owner, name, None)
        setattr(owner, name, value)
        if former is not None and callable(former):
            rebind(former, value)


def rebind(former: object, value: object) -> None:
    """Replace copies that torch's own modules bound early (`from torch._C import x`) by the new object."""
    for module_name, module in list(sys.modules.items()):
        if module_name.partition(".")[0] == "torch" and isinstance(module, ModuleType):
            for name, held in list(vars(module).items()):
                if held is former:
                    setattr(module, name, value)


def forget(*functions: Any) -> None:
    """Clear the caches of torch functions that hold results from before the installation."""
    for function in functions:
        if hasattr(function, "cache_clear"):
            function.cache_clear()


def on_base(cls: type, base: type) -> type:
    """A copy of the class with the same methods on another base, so that torch's Python code keeps running.

    A base class in C cannot be replaced in place. `super()` finds its class in the cell `__class__`, which all methods
    share. The cell is set to the new class.
    """
    body = {name: value for name, value in vars(cls).items() if name not in ("__dict__", "__weakref__")}
    new = type(cls.__name__, (base,), body)
    for value in body.values():
        for function in (value, *(getattr(value, part, None) for part in ("__func__", "fget", "fset"))):
            if isinstance(function, FunctionType) and "__class__" in function.__code__.co_freevars:
                assert function.__closure__ is not None
                function.__closure__[function.__code__.co_freevars.index("__class__")].cell_contents = new
    rebind(cls, new)
    return new
