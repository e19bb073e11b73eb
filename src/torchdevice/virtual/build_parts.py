"""What torch builds for a device implement in C outside its namespace: storages, legacy types, compilers, collectives.

- Storages: constructors, moves, sharing between processes.
- Legacy types: `torch.cuda.FloatTensor` and the other typed tensor classes.
- Compilers: inductor must not look for Triton, fusers not for NVRTC, extension builders not for nvcc.
- Collectives: c10d's operators run with gloo on the CPU twins of a device's tensors. Programs still request and read
  back the name `nccl` (on xpu: `xccl`).

Nothing here is undone: a virtual device stays until its process ends.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.machinery
import itertools
import sys
import warnings
from types import ModuleType
from typing import Any

import torch

from torchdevice._torch import builds, compilers, jagged
from torchdevice._torch.core import legacy_tensor_types
from torchdevice._torch.imports import when_imported
from torchdevice.answers import attention, outside
from torchdevice.answers.audience import Audience
from torchdevice.answers.packages import is_installed
from torchdevice.errors import VirtualDeviceUnavailable, explain_error
from torchdevice.translate.engine import apply, dress
from torchdevice.translate.points import resolve_path
from torchdevice.translate.translator import translator
from torchdevice.virtual.library import Library


def new_storage(size: int, device: torch.device | str) -> torch.UntypedStorage:
    return torch.empty(int(size), dtype=torch.uint8, device=device).untyped_storage()


def install_storages(kind: str, lib: Library, on: str) -> None:
    original_new = torch.UntypedStorage.__new__

    def construct(cls: type, *arguments: Any, **options: Any) -> torch.UntypedStorage:
        """UntypedStorage(n, device=…): the C constructor accepts only the devices that torch was compiled with."""
        device = options.get("device")
        if device is None or torch.device(device).type != kind or "allocator" in options:
            return original_new(cls, *arguments, **options)
        if not arguments:
            return new_storage(0, device)
        if isinstance(arguments[0], int):
            return new_storage(arguments[0], device)
        return new_storage(len(arguments[0]), device).copy_(original_new(cls, arguments[0]), False)

    def move(self: torch.UntypedStorage, device: Any = None, non_blocking: bool = False) -> torch.UntypedStorage:
        target = torch.device(kind, device) if isinstance(device, int) else torch.device(device or kind)
        if self.device.type == kind and target.index in (None, self.device.index):
            return self
        return new_storage(self.nbytes(), target).copy_(self, non_blocking)

    def resize(self: torch.UntypedStorage, size: int) -> torch.UntypedStorage:
        if self.device.type != kind or kind == "mps":  # the real MPS raises an error, too
            return original_resize(self, size)
        lib.call("resize", self._cdata, size)
        return self

    original_resize = torch.UntypedStorage.resize_
    torch.UntypedStorage.resize_ = resize
    torch.UntypedStorage.__new__ = staticmethod(construct)
    _share_between_processes(kind, lib, on)
    if kind == "mps":
        builds.StorageBase.mps = move  # torch.load calls it by this name


def _share_between_processes(kind: str, lib: Library, on: str) -> None:
    """Moves the bytes of a storage into shared memory once; every process, forked or spawned, maps the same memory.

    If the CPU computes, the memory of a virtual device is host memory, and `share_memory_()` works as on the CPU.
    CUDA's IPC handles and the pickles of other devices hold the names of that shared memory. The memory of an
    accelerator cannot be shared. `share_memory_()` does nothing for a `cuda` there, as on CUDA.
    """
    original_share, original_is_shared = torch.UntypedStorage.share_memory_, torch.UntypedStorage.is_shared

    def home_of(storage: torch.UntypedStorage) -> torch.UntypedStorage:
        if (name := storage.__dict__.get(_HOME)) is not None:
            return builds.shared_memory_named(name)
        if on != "cpu":
            raise VirtualDeviceUnavailable(
                explain_error(
                    f"a tensor on {storage.device} was sent to another process",
                    f"its memory belongs to {on}, which computes for the virtual {kind}, and only this process has it",
                    f"send `tensor.cpu()`, or let the CPU compute with `--virtual {kind}`",
                )
            )
        home = builds.new_shared_memory(storage.nbytes())
        home.copy_(storage.cpu())
        _adopt(lib, storage, home)
        return home

    def share_memory_(self: torch.UntypedStorage, *args: Any, **kwargs: Any) -> torch.UntypedStorage:
        if self.device.type != kind:
            return original_share(self, *args, **kwargs)
        if self.nbytes() and not (kind == "cuda" and on != "cpu"):
            home_of(self)
        return self

    def is_shared(self: torch.UntypedStorage) -> bool:
        return original_is_shared(self) or _HOME in self.__dict__

    def share(self: torch.UntypedStorage) -> tuple[Any, ...]:
        if self.device.type != kind:
            raise RuntimeError("_share_cuda_: only available on CUDA")
        handle = builds.handle_of(home_of(self))
        return (self.device.index, handle, self.nbytes(), 0, handle, 0, b"", False)

    def attach(cls: type, device: int, handle: tuple[Any, ...], size: int, *_: Any) -> torch.UntypedStorage:
        return _attached(lib, kind, device, handle)

    def release(cls: type, handle: tuple[Any, ...], *_: Any, **__: Any) -> None:
        """The receiver has the storage already: drops the reference of a second handle."""
        builds.shared_memory_at(handle)

    def reduced(storage: torch.UntypedStorage) -> tuple[Any, ...] | None:
        if storage.device.type != kind or not storage.nbytes():
            return None
        return rebuild_shared, (kind, storage.device.index, builds.handle_of(home_of(storage)))

    torch.UntypedStorage.share_memory_ = functools.wraps(original_share)(share_memory_)
    torch.UntypedStorage.is_shared = functools.wraps(original_is_shared)(is_shared)
    if kind == "cuda":
        builds.share_between_processes(share, attach, release)
    else:
        _libraries[kind] = lib
        builds.send_storages_by(reduced)


# An attribute of a storage: the name of the shared memory that holds its bytes. Not the memory itself: on torch 2.9 the
# attributes of a storage live on as long as a table of torch refers to it.
_HOME = "_torchdevice_home"
_libraries: dict[str, Library] = {}


def rebuild_shared(kind: str, device: int, handle: tuple[Any, ...]) -> torch.UntypedStorage:
    """A storage that another process has sent. Pickles refer to this function by name."""
    return _attached(_libraries[kind], kind, device, handle)


def _attached(lib: Library, kind: str, device: int, handle: tuple[Any, ...]) -> torch.UntypedStorage:
    home = builds.shared_memory_at(handle)
    attached = new_storage(0, torch.device(kind, device))
    _adopt(lib, attached, home)
    return attached


def _adopt(lib: Library, storage: torch.UntypedStorage, home: torch.UntypedStorage) -> None:
    """The bytes of the storage are those of `home` from now on, which lives as long as they do."""
    lib.call("adopt", storage._cdata, home._cdata)
    storage.__dict__[_HOME] = builds.name_of(home)


# The legacy types of CUDA among those that every build names: `Float` → float32.
DTYPES = {
    name.removesuffix("Tensor"): getattr(torch, name).dtype
    for module, name in legacy_tensor_types()
    if module is torch.cuda
}
VIEWED = (torch.Tensor, torch.UntypedStorage, torch.TypedStorage)


NOT_RECOMMENDED = (
    "The torch.cuda.*DtypeTensor constructors are no longer recommended. It's best to use methods such as "
    "torch.tensor(data, dtype=*, device='cuda') to create tensors."
)
_warned: set[str] = set()


def _warn_once(text: str) -> None:
    """Warns as torch does in C++: once per process, unless `torch.set_warn_always(True)` was called."""
    if text not in _warned or torch.is_warn_always_enabled():
        _warned.add(text)
        warnings.warn(text, UserWarning, stacklevel=3)


class LegacyType(type):
    """Metaclass of these classes: `isinstance(x, torch.cuda.FloatTensor)` compares device and dtype, as in torch."""

    dtype: torch.dtype
    is_cuda = True
    is_sparse = False
    layout = torch.strided

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, torch.Tensor) and value.is_cuda and value.dtype == cls.dtype and not value.is_sparse

    def __call__(cls, *arguments: Any, **options: Any) -> torch.Tensor:
        """FloatTensor(), (2, 3), (sequence), (storage): a new tensor on the current device. (tensor): an alias of it.

        `Tensor.new` is the same constructor of torch, with the same checks.
        """
        _warn_once(NOT_RECOMMENDED)
        return torch.empty(0, dtype=cls.dtype, device="cuda").new(*arguments, **options)

    def __repr__(cls) -> str:
        return f"<class 'torch.cuda.{cls.__name__}'>"


def install_legacy_types() -> None:
    """Adds the classes to torch.cuda, and makes `Tensor.type` and `set_default_tensor_type` accept them."""
    for prefix, dtype in DTYPES.items():
        name = f"{prefix}Tensor"
        made = LegacyType(name, (), {"dtype": dtype, "__module__": "torch.cuda"})
        setattr(torch.cuda, name, made)
    original_type = torch.Tensor.type
    original_default = builds.set_default_tensor_type
    original_new = torch.Tensor.__new__
    default_is_here = False
    on_the_host = {name: getattr(torch, name) for module, name in legacy_tensor_types() if module is torch}
    by_name = {f"torch.cuda.{name}Tensor": dtype for name, dtype in DTYPES.items()}

    def tensor_type(self: torch.Tensor, dtype: Any = None, non_blocking: bool = False, **options: Any) -> Any:
        wanted = (
            dtype.dtype if isinstance(dtype, LegacyType) else by_name.get(dtype) if isinstance(dtype, str) else None
        )
        if wanted is None:
            return original_type(self, dtype, non_blocking, **options) if dtype is not None else original_type(self)
        return self.to(device=self.device if self.is_cuda else "cuda", dtype=wanted, non_blocking=non_blocking)

    def new(cls: Any, *arguments: Any, **options: Any) -> Any:
        """`torch.Tensor(2, 3)` has the default type; `torch.Tensor` of a tensor or a storage is a view."""
        made = original_new(cls, *arguments, **options)
        if not default_is_here or cls is not torch.Tensor or (arguments and isinstance(arguments[0], VIEWED)):
            return made
        return made.to("cuda")

    def set_default_tensor_type(kind: Any) -> None:
        nonlocal default_is_here
        default_is_here = isinstance(kind, LegacyType)
        if isinstance(kind, LegacyType):
            original_default(on_the_host[kind.__name__])
            torch.set_default_device("cuda")
        else:
            original_default(kind)
            torch.set_default_device(None)

    vars(new)["__wrapped__"] = original_new  # torch's compiler compares signatures
    torch.Tensor.__new__ = staticmethod(new)
    # torch's compiler takes a bound method for a method of tensors only if it has the name under which it is found.
    torch.Tensor.type = dress(tensor_type, original_type, "torch.Tensor.type")
    builds.replace_set_default_tensor_type(set_default_tensor_type)


def _run_graphs_eagerly(kind: str) -> None:
    """Graphs of the virtual device for inductor or for CUDA graphs are compiled ahead of time and run eagerly."""
    compile_with_inductor = builds.Inductor.__call__

    @functools.wraps(compile_with_inductor)
    def compile_graph(self: Any, model: Any, inputs: Any, **options: Any) -> Any:
        if not _touches(kind, model, inputs):
            return compile_with_inductor(self, model, inputs, **options)
        return builds.compile_without_inductor(model, inputs)

    def decide(module: str, name: str) -> None:  # for callers that do not go through that class
        original = getattr(sys.modules[module], name)

        @functools.wraps(original)
        def compile_function(model: Any, inputs: Any, *arguments: Any, **options: Any) -> Any:
            own_compiler = bool(arguments) or "inner_compile" in options
            if own_compiler or not _touches(kind, model, inputs):
                return original(model, inputs, *arguments, **options)
            return builds.compile_without_inductor(model, inputs)

        setattr(sys.modules[module], name, compile_function)

    builds.Inductor.__call__ = compile_graph
    for module, name in ((builds.INDUCTOR, "compile_fx"), (builds.CUDAGRAPHS, "cudagraphs")):
        when_imported(module, name, functools.partial(decide, module, name))


def _touches(kind: str, model: Any, inputs: Any) -> bool:
    def on_device(value: Any) -> bool:
        device = getattr(value, "device", value)
        if isinstance(device, str):
            return device.partition(":")[0] == kind
        return isinstance(device, torch.device) and device.type == kind

    values = builds.values_of_graph(model, inputs)
    return any(on_device(value) for value in itertools.chain(values, model.parameters(), model.buffers()))


def _hide_toolkit(kind: str) -> None:
    """Extension builders find no nvcc and use their own fallback. Those without one get an error with the reason."""
    module = sys.modules[outside.EXTENSIONS]
    vars(module).update(CUDA_HOME=None, CUDNN_HOME=None, _join_cuda_home=_no_toolkit)
    audience = Audience(translator)
    audience.target = f"a virtual {kind}"
    refusing = functools.partial(outside.refusing_cuda_sources, always=True)
    rows = tuple(dataclasses.replace(row, adapter=refusing) for row in outside.BUILDERS)
    apply(outside.replacements(rows, audience, lambda path: module))


def install_settings(kind: str) -> None:
    """Makes profilers see the device, and stores settings for libraries that this build of torch lacks."""
    # The operators of a virtual device are in the CPU's activity.
    profiling = functools.partial(outside.cuda_activity, always=True)
    profiler = dataclasses.replace(outside.PROFILER, adapter=profiling)
    apply(outside.replacements((profiler,), Audience(translator), resolve_path))
    if kind == "cuda":
        for name in outside.LIBRARIES:
            original, path = getattr(torch.backends.cuda, name), f"torch.backends.cuda.{name}"
            setattr(torch.backends.cuda, name, dress(outside.stored_choice(original), original, path))


def install_attention(kind: str) -> None:
    """Attention of jagged tensors as on CUDA, whose kernels for them a virtual device lacks."""

    def patch() -> None:
        module = sys.modules[jagged.MODULE]
        original = getattr(module, jagged.ATTENTION)
        made = dress(attention.per_sequence(original, (kind,)), original, f"{jagged.MODULE}.{jagged.ATTENTION}")
        setattr(module, jagged.ATTENTION, made)

    when_imported(jagged.MODULE, jagged.DEFINED_LATE, patch)


def _no_toolkit(*paths: str) -> str:
    """For builds that do not go through those functions, such as `BuildExtension`."""
    raise outside.cuda_sources_refused(outside.EXTENSIONS, "a virtual one")


def _no_native_kernels() -> None:
    """Disables torch's own kernels in Triton and CuteDSL, which torch uses if these packages are installed."""
    import torch.backends.python_native as kernels

    for language in kernels.available_dsls:
        getattr(kernels, language).disable()


def _hide_triton() -> None:
    """Makes `import triton` fail even if it is installed, so that libraries take their path without it."""
    if is_installed(importlib.machinery.PathFinder.find_spec("triton")):
        sys.modules.setdefault("triton", None)  # type: ignore[arg-type]


def install_compilers(kind: str) -> None:
    compilers.when_dynamo_is_imported(compilers.leave_untraced)
    _run_graphs_eagerly(kind)
    if kind != "mps":
        _hide_triton()
        builds.expect_no_compilers()
    when_imported("torch._native", "", _no_native_kernels)
    builds.fuse_nothing_on_gpus()
    if kind == "cuda":
        when_imported(outside.EXTENSIONS, "load_inline", functools.partial(_hide_toolkit, kind))


C10D = "torch.distributed.distributed_c10d"
VENDOR = {"cuda": "NCCL", "xpu": "XCCL"}
_kept: list[object] = []  # kept alive: a kernel is removed with the last reference to it


def install_collectives(kind: str, on: str) -> None:
    def patch() -> None:
        module = sys.modules[C10D]
        from torchdevice._torch import dispatcher, dtensors
        from torchdevice.distributed import collectives  # torch.distributed is loaded now

        # c10d has no kernels for MPS. Tensors are copied to the CPU and back there.
        copies = "c10d::allreduce_" not in dispatcher.kernels_under(on.upper())
        _offer_vendor_backend(module, kind)
        _add_backends(module, kind, "cpu" if copies else on)
        _fill_gaps(module)
        collectives.apply()
        dtensors.apply()
        # gloo gives a sparse tensor new indices when it is done, so the twin no longer shares them with the tensor.
        _kept.extend(collectives.stage(kind, layout) for layout in (("", "Sparse") if copies else ("Sparse",)))

    when_imported(C10D, "", patch)


def _offer_vendor_backend(module: ModuleType, kind: str) -> None:
    import torch.distributed

    from torchdevice.distributed import backends

    name = VENDOR[kind]
    backend = backends.group_class(name)
    if backend is None:
        return  # torch without gloo: no backend can replace it, and torch raises its own error

    def is_available() -> bool:
        return True

    is_available.__name__ = f"is_{name.lower()}_available"
    # From 2.14 on "nccl" is implemented by `ProcessGroupNCCL2`, and programs may name further classes.
    classes = {f"ProcessGroup{name}", *(each for each in vars(module) if each.startswith(f"ProcessGroup{name}"))}
    for place in (module, torch.distributed):
        vars(place).update({**dict.fromkeys(classes, backend), is_available.__name__: is_available})
    vars(module)[f"_{name}_AVAILABLE"] = True
    if name == "NCCL":  # torch's value is None in a build without NCCL, and reading it there prints a warning
        vars(module)["default_pg_nccl_timeout"] = backends.VENDOR_TIMEOUT
    # Called if torch checks collectives (TORCH_DISTRIBUTED_DEBUG=DETAIL) and has NCCL.
    builds.hash_tensors_with(_hash_tensors)


def _hash_tensors(tensors: list[Any]) -> int:
    return hash(tuple(bytes(tensor.cpu().contiguous().view(-1).tolist()) for tensor in tensors))


def _always() -> bool:
    return True


def _fill_gaps(module: ModuleType) -> None:
    import torch.distributed

    from torchdevice._torch import distributed as private
    from torchdevice.distributed import points

    for name in private.reductions():
        method = getattr(module.ProcessGroup, name)
        setattr(
            module.ProcessGroup, name, points.premultiplied(method, f"torch.distributed.ProcessGroup.{name}", _always)
        )
    for name, adapter in {"_coalescing_manager": points.coalescing, "split_group": points.splitting}.items():
        replacement = adapter(getattr(module, name), f"{module.__name__}.{name}", _always)
        for place in (module, torch.distributed):
            setattr(place, name, replacement)


def _add_backends(module: ModuleType, kind: str, on: str) -> None:
    """Adds backends for the types that compute: kernels for operators of c10d look for one by the type of a tensor."""
    original = module.BackendConfig.get_device_backend_map

    def get_device_backend_map(self: Any) -> dict[str, Any]:
        chosen = original(self)
        if kind not in chosen:
            return dict(chosen)
        return {on: _backend_of(module, on, chosen[kind]), "cpu": chosen[kind], **chosen}

    module.BackendConfig.get_device_backend_map = get_device_backend_map


def _backend_of(module: ModuleType, accelerator: str, asked: str) -> str:
    """The real backend of an accelerator's vendor, if the program asked for a vendor's backend and torch has it."""
    vendor = VENDOR.get(accelerator, "").lower()
    available = getattr(module, f"is_{vendor}_available", lambda: False)
    return vendor if asked != "gloo" and available() else "gloo"
