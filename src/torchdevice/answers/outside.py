"""Names outside the namespaces that CUDA code uses with them: versions, flags, autocast's state, profilers, helpers.

The rows are in `OUTSIDE`. Each names an adapter of this file. Settings that torch stores in every build need no row:
`torch.backends.cudnn.benchmark`, `torch.backends.cuda.matmul.allow_tf32`, the choice of attention kernels.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torchdevice._torch import jagged
from torchdevice._torch.core import RealDevice
from torchdevice.answers import attention, comm, devices
from torchdevice.answers.audience import Audience
from torchdevice.answers.device import constant
from torchdevice.answers.rows import Kind, Row
from torchdevice.errors import CudaExtensionRefused, explain_error
from torchdevice.translate.engine import Replacement, dress

_getframe = sys._getframe


@dataclass(frozen=True)
class OutsideRow:
    """A path, its kind of replacement, its result. `adapter(original, path, row, audience)` makes the replacement."""

    path: str
    kind: Kind
    answer: str
    adapter: Callable[..., Any]
    truth: bool = False
    constant: bool = False


Later = tuple[tuple[str, str, tuple[OutsideRow, ...]], ...]


def answering(function: Callable[..., Any]) -> Callable[..., Any]:
    """An adapter: calls `function` instead of the original."""

    def adapt(original: Any, path: str, row: Row, audience: Audience) -> Any:
        return audience.answering(row, path, original, function)

    return adapt


def on_one_device(function: Callable[..., Any]) -> Callable[..., Any]:
    """An adapter: calls `function` if the target has one device, and the original if it has several."""

    def adapt(original: Any, path: str, row: Row, audience: Audience) -> Any:
        def answer(*args: Any, **kwargs: Any) -> Any:
            host = audience.translator.host
            if host.count > 1:
                return original(*args, **kwargs)
            return function(RealDevice(host.type) if host.type == "cpu" else RealDevice(host.type, 0), *args, **kwargs)

        return audience.answering(row, path, original, answer)

    return adapt


def filled_with(value: Any) -> Callable[..., Any]:
    """An adapter for a module's attribute: this value, unless torch has a value."""

    def adapt(original: Any, path: str, row: Row, audience: Audience) -> Any:
        return value if original is None else original

    return adapt


def autocast_state(position: int) -> Callable[..., Any]:
    """An adapter for functions that read or set autocast's state for a device type, by default `cuda`.

    `position`: the position of the device type among the arguments. -1 for functions whose name implies the type
    (`get_autocast_gpu_dtype`).
    """

    def adapt(original: Any, path: str, row: Row, audience: Audience) -> Any:
        asks = "enabled" if "enabled" in path else "dtype"
        read = path.rpartition(".")[2].startswith(("is_", "get_"))
        act = getattr(
            torch, f"{'is' if asks == 'enabled' else 'get'}_autocast_{asks}" if read else f"set_autocast_{asks}"
        )
        enabled = torch.is_autocast_enabled

        def answer(*args: Any) -> Any:
            target = audience.target
            asked = args[position] if 0 <= position < len(args) and isinstance(args[position], str) else "cuda"
            rest = tuple(value for value in args if not isinstance(value, str))
            if asked in ("cpu", target):
                return act(asked, *rest)
            if not read:
                act(asked, *rest)  # a later `autocast("cuda")` without a dtype uses this one
                return act(target, *rest)
            if asks == "dtype" and not enabled(target):
                return act(asked)
            return act(target)

        return audience.answering(row, path, original, answer)

    return adapt


def cuda_activity(original: Any, path: str, row: Row, audience: Audience, always: bool = False) -> Any:
    """Adds CPU activity to `torch.profiler.profile(activities=[CUDA])`, because CUDA's operators run on the target.

    `always`: also while nothing is translated.
    """
    parameters = list(inspect.signature(original).parameters)
    position = parameters.index("activities") if "activities" in parameters else sys.maxsize

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        if always or audience.translator.in_force:
            activities = kwargs.get("activities")
            if activities is not None:
                kwargs["activities"] = {*activities, torch.profiler.ProfilerActivity.CPU}
            elif len(args) > position - 1 and args[position - 1] is not None:
                wanted = {*args[position - 1], torch.profiler.ProfilerActivity.CPU}
                args = (*args[: position - 1], wanted, *args[position:])
        original(self, *args, **kwargs)

    return dress(__init__, original, path)


def host_profiler(original: Any, path: str, row: Row, audience: Audience) -> Any:
    """Removes `use_device="cuda"` from `torch.autograd.profiler.profile`: torch would warn that CUDA is missing."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        if audience.translator.in_force:
            if kwargs.get("use_device") == "cuda":
                kwargs["use_device"] = None
            kwargs.pop("use_cuda", None)  # the old name, up to torch 2.14
        original(self, *args, **kwargs)

    return dress(__init__, original, path)


def quiet(result: Callable[[Any], Any]) -> Callable[..., Any]:
    """An adapter for a method that does nothing here."""

    def adapt(original: Any, path: str, row: Row, audience: Audience) -> Any:
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            if not audience.translator.in_force:
                return original(self, *args, **kwargs)
            return result(self)

        return dress(method, original, path)

    return adapt


def refusing_cuda_sources(original: Any, path: str, row: Row, audience: Audience, always: bool = False) -> Any:
    """An adapter for building an extension. CUDA sources raise an error; C++ sources are built.

    `always`: also while no session is active, for a virtual device, which stays installed.
    """
    signature = inspect.signature(original)

    def build(*args: Any, **kwargs: Any) -> Any:
        if always or audience.translator.in_force:
            try:
                given = signature.bind(*args, **kwargs).arguments
            except TypeError:  # the original raises a better message
                return original(*args, **kwargs)
            given |= given.get("kwargs", {})
            files = [file for file in _strings(given.get("sources")) if file.endswith((".cu", ".cuh"))]
            if files or path.endswith("CUDAExtension") or given.get("cuda_sources") or given.get("with_cuda"):
                audience.note(row, path)
                raise cuda_sources_refused(path, audience.target, str(given.get("name", "")), files)
        return original(*args, **kwargs)

    return dress(build, original, path)


def cuda_sources_refused(path: str, target: str, name: str = "", files: Sequence[str] = ()) -> CudaExtensionRefused:
    """The error for CUDA sources. Its message begins like torch's own, because build scripts may search for that."""
    extension = f" of the extension {name!r}" if name else ""
    return CudaExtensionRefused(
        explain_error(
            f"CUDA_HOME environment variable is not set, and {path} was asked to build CUDA sources{extension}"
            + (f" ({', '.join(files)})" if files else ""),
            f"the device here is {target}, which cannot run them",
            "build only the extension's C++ sources (CppExtension), or use its implementation in plain PyTorch",
        )
    )


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, (str, os.PathLike)):
        yield str(value)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _strings(each)


class PlanCaches:
    """`torch.backends.cuda.cufft_plan_cache`: a cache of FFT plans that is always empty. Its limit is stored."""

    def __init__(self) -> None:
        self.size = 0
        self.max_size = 4096

    def __getitem__(self, asked: Any) -> PlanCaches:
        return self

    def clear(self) -> None:
        self.size = 0


def plan_caches(original: Any, path: str, row: Row, audience: Audience) -> Any:
    """An adapter: one cache for all devices."""
    return PlanCaches()


def stored_choice(original: Any) -> Callable[..., Any]:
    """The choice of a CUDA library is only stored if torch is built without it."""
    kept: list[Any] = []

    def choose(backend: Any = None) -> Any:
        if backend is None:
            return kept[0] if kept else original()
        choices = {name.lower(): choice for name, choice in type(original()).__members__.items()}
        try:
            chosen = original(backend)
        except RuntimeError:
            chosen = choices.get(backend.lower()) if isinstance(backend, str) else backend
            if chosen not in choices.values():
                raise
        kept[:] = [chosen]
        return chosen

    return choose


def preferred_library(original: Any, path: str, row: Row, audience: Audience) -> Any:
    """An adapter for `stored_choice`."""
    return audience.answering(row, path, original, stored_choice(original))


def _workspace(size: int) -> Callable[..., int]:
    kept = [size]

    def workspace_size(size: int | None = None, backend: Any = None) -> int:
        if size is not None:
            kept[0] = size
        return kept[0]

    return workspace_size


def jagged_attention(original: Any, path: str, row: Row, audience: Audience) -> Any:
    """An adapter: attention of jagged tensors on targets for which torch has no kernel of its own."""
    return dress(attention.per_sequence(original, ("cpu", "mps")), original, path)


S, N, U, M = Kind.SIMULATED, Kind.NO_OP, Kind.UNSUPPORTED, Kind.MAPPED
_BACKEND = "torch.backends."
_STATE = "the target's autocast state"
_ONE = "; torch's own with several devices"

PROFILER = OutsideRow("torch.profiler.profile.__init__", M, "the CPU's activity is profiled as well", cuda_activity)
LIBRARIES = ("preferred_linalg_library", "preferred_blas_library")  # of torch.backends.cuda

OUTSIDE = (
    OutsideRow("torch.version.cuda", S, f"`{devices.CUDA_VERSION}`", filled_with(devices.CUDA_VERSION)),
    OutsideRow(f"{_BACKEND}cuda.is_built", S, "`True`", answering(constant(True)), truth=True),
    OutsideRow(f"{_BACKEND}cudnn.is_available", S, "`True`", answering(constant(True)), truth=True),
    OutsideRow(
        f"{_BACKEND}cudnn.version",
        S,
        f"`{devices.CUDNN_VERSION}`",
        answering(constant(devices.CUDNN_VERSION)),
        truth=True,
    ),
    OutsideRow(f"{_BACKEND}cuda.cufft_plan_cache", S, "an empty cache; its limit is stored", plan_caches),
    OutsideRow(f"{_BACKEND}cuda.cublas_workspace_size", S, "only stored", answering(_workspace(8519680))),
    OutsideRow(f"{_BACKEND}cuda.cublaslt_workspace_size", S, "only stored", answering(_workspace(1048576))),
    OutsideRow(f"{_BACKEND}cuda.blas_workspace_size", S, "only stored", answering(_workspace(8519680))),
    *(OutsideRow(f"{_BACKEND}cuda.{name}", S, "only stored", preferred_library, truth=True) for name in LIBRARIES),
    OutsideRow("torch.is_autocast_enabled", M, _STATE, autocast_state(0), truth=True, constant=True),
    OutsideRow("torch.get_autocast_dtype", M, _STATE, autocast_state(0), truth=True, constant=True),
    OutsideRow("torch.get_autocast_gpu_dtype", M, _STATE, autocast_state(-1), truth=True, constant=True),
    OutsideRow("torch.set_autocast_enabled", M, _STATE, autocast_state(0), truth=True),
    OutsideRow("torch.set_autocast_dtype", M, _STATE, autocast_state(0), truth=True),
    OutsideRow("torch.set_autocast_gpu_dtype", M, _STATE, autocast_state(-1), truth=True),
    PROFILER,
    OutsideRow("torch.autograd.profiler.profile.__init__", M, "the CPU's activity is profiled", host_profiler),
    OutsideRow("torch.autograd.profiler.emit_nvtx.__enter__", N, "does nothing", quiet(lambda self: self)),
    OutsideRow("torch.autograd.profiler.emit_nvtx.__exit__", N, "does nothing", quiet(lambda self: False)),
    OutsideRow("torch.nn.parallel.scatter", S, f"parts on the target{_ONE}", on_one_device(comm.scatter_on_one)),
    OutsideRow("torch.nn.parallel.gather", S, f"joined on the target{_ONE}", on_one_device(comm.gather_on_one)),
    OutsideRow("torch.nn.parallel.replicate", S, f"the module itself{_ONE}", on_one_device(comm.replicate_on_one)),
    OutsideRow(
        "torch.nn.parallel.parallel_apply", S, f"one after the other{_ONE}", on_one_device(comm.parallel_apply_on_one)
    ),
    OutsideRow(
        "torch.nn.parallel.data_parallel",
        S,
        f"the module on all inputs{_ONE}",
        on_one_device(comm.data_parallel_on_one),
    ),
    OutsideRow(
        "torch.nn.parallel.DataParallel.__init__",
        S,
        f"as with one GPU{_ONE}",
        on_one_device(comm.data_parallel_init_on_one),
    ),
)

EXTENSIONS = "torch.utils.cpp_extension"
BUILDERS = tuple(
    OutsideRow(f"{EXTENSIONS}.{name}", U, "raises `CudaOnlyError` for CUDA sources", refusing_cuda_sources)
    for name in ("CUDAExtension", "load", "load_inline")
)

JAGGED_ATTENTION = OutsideRow(
    f"{jagged.MODULE}.{jagged.ATTENTION}", M, "one call per sequence; torch's own on xpu", jagged_attention
)

# Rows that are applied when a module is imported: (module, a name that it defines, rows). Importing it here would take
# longer than the whole activation.
LATER: Later = (
    (EXTENSIONS, "load_inline", BUILDERS),
    (jagged.MODULE, jagged.DEFINED_LATE, (JAGGED_ATTENTION,)),
)


def replacements(rows: tuple[OutsideRow, ...], audience: Audience, resolve: Callable[[str], Any]) -> list[Replacement]:
    """The replacements for names that this torch has. `resolve` finds an object by its path."""
    made = []
    for row in rows:
        holder, _, name = row.path.rpartition(".")
        owner = resolve(holder)
        if not hasattr(owner, name):
            continue
        original = getattr(owner, name)
        value = row.adapter(
            original, row.path, Row(row.path, row.kind, row.answer, row.truth, constant=row.constant), audience
        )
        made.append(Replacement(row.path, owner, name, value))
        made += [
            Replacement(f"{path}.{name}", module, name, value) for path, module in _holding(original, name, holder)
        ]
    return made


def _holding(value: Any, name: str, package: str) -> list[tuple[str, Any]]:
    """The modules of a package that also hold one of its functions: the defining module and those that import it."""
    if package not in sys.modules or not inspect.isfunction(value):
        return []
    inside = [(path, module) for path, module in sys.modules.items() if path.startswith(f"{package}.")]
    return [(path, module) for path, module in inside if package != "torch" and vars(module).get(name) is value]
