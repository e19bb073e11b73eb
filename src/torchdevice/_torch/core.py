"""Private names and version checks of torch's core: devices, tensors, storages, data loading. Each has its reason.

"Expiry" says what would make an entry unnecessary. Operators and their kernels are in `dispatcher`, process groups in
`distributed`, torch's compiler and TorchScript in `compilers`, modules that are not imported yet in `imports`.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FrameType, ModuleType
from typing import Any

import torch
import torch.mps.event
import torch.utils.data._utils.pin_memory as _pinning
import torch.utils.data._utils.worker as _data_worker
from torch.utils import _device as _default_device
from torch.utils import _python_dispatch as _dispatch
from torch.utils.data import dataloader

Undo = Callable[[], object]

# Bound before any patching: a session replaces `torch.device` and the others.
RealDevice = torch.device
RealGenerator = torch.Generator
RealTensor = torch.Tensor
RealStream = torch.Stream
RealEvent = torch.Event
tensor_to = torch.Tensor.to  # the C method costs half as much as calling its operator

# Device types that are virtual in this process, each with the type that computes for it. Kernels of the real device
# must not be called by name for a virtual type.
virtual_types: dict[str, str] = {}

TORCH_FOLDER = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep

# The iterator behind `for batch in loader` and the entry of worker processes have no public names.
# Expiry: a public hook of DataLoader for moving batches and for starting workers.
worker_loop = _data_worker._worker_loop
WORKER_LOOP = "torch.utils.data._utils.worker._worker_loop"
DATALOADER_ITERATOR = "torch.utils.data.dataloader._BaseDataLoaderIter"
# Where `.cuda()`, `.cpu()` and `.to()` of all storages are defined. Expiry: none in sight.
STORAGE_BASE = "torch.storage._StorageBase"
# `torch.load` calls it to make each tensor after its bytes are on the device. Expiry: a public hook for dtypes.
REBUILD_TENSOR = "torch._utils._rebuild_tensor"
# The same for dtypes that typed storages do not have (float8), and the table in which loading of weights looks it up.
# Expiry: the same.
REBUILD_OF_BYTES = "torch._utils._rebuild_tensor_v3"
ALLOWED_BY_NAME = "torch._weights_only_unpickler._get_allowed_globals"
# The pickles of packages name it to make a script module. Expiry: the end of TorchScript, which torch has deprecated.
UNPACKAGE_SCRIPT = "torch.jit._script.unpackage_script_module"
# The device types for which optimizers accept capturable=True. Expiry: the list's removal.
CAPTURABLE = "torch.optim.optimizer._get_capturable_supported_devices"
# Whether gradient clipping accepts foreach=True for a device. Its operators run on all. Expiry: the list's removal.
FOREACH_SUPPORT = "torch.utils._foreach_utils._device_has_foreach_support"
# Every function that chooses attention kernels calls it. Expiry: a public setter for all of them.
ATTENTION_KERNELS = "torch.nn.attention._sdpa_kernel"
# The tensor class that torch's compiler uses for tracing. It has its own conversion methods. Expiry: none in sight.
FUNCTIONAL_TENSOR = "torch._subclasses.functional_tensor.FunctionalTensor"

# Calls `pin_memory()` of every object in a batch. Expiry: a public name for it.
pin_batch = _pinning.pin_memory


class MethodsInC:
    """Allows replacing the methods of an immutable class in C. A subclass does not help: C does not instantiate it.

    Assigning to an attribute writes to the dict of the class and invalidates the interpreter's caches.
    Expiry: a `torch.Generator` whose methods can be replaced, or that accepts a state from any device.
    """

    __slots__ = ("__dict__", "_kind")
    _kind: type

    def __init__(self, kind: type) -> None:
        object.__setattr__(self, "__dict__", gc.get_referents(vars(kind))[0])  # the dict behind the read-only view
        object.__setattr__(self, "_kind", kind)

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        ctypes.pythonapi.PyType_Modified(ctypes.py_object(self._kind))


_IMMUTABLE = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE


def assignable(owner: Any) -> Any:
    """The object on which to set an attribute of the owner: the owner itself, or `MethodsInC` if it is immutable."""
    return MethodsInC(owner) if isinstance(owner, type) and owner.__flags__ & _IMMUTABLE else owner


def torch_release() -> tuple[int, ...]:
    """The first two numbers of torch's version."""
    return tuple(map(int, str(torch.__version__).split(".")[:2]))


# The releases on which tests passed, by `make matrix` (docs/versions.md) or `make test`. A test checks this list.
TESTED_RELEASES = ((2, 9), (2, 10), (2, 11), (2, 12), (2, 13), (2, 14), (2, 15))


def device_types() -> tuple[str, ...]:
    """The device types that this torch can parse, read from its error message for others.

    Expiry: a public list of device types.
    """
    try:
        RealDevice("unknown")
    except RuntimeError as refusal:
        listed = re.search(r"Expected one of (.+?) device type", str(refusal))
        if listed:
            return tuple(name.strip() for name in listed[1].split(","))
    raise RuntimeError(f"torch {torch.__version__} no longer lists its device types when it refuses one")


DeviceContext = _default_device.DeviceContext
# Expiry: as for `has_device_context`. Before torch 2.13, compiled code does not apply a default device that it has set.
MODES_IN_FORCE = torch.overrides._get_current_function_mode_stack
DEFAULT_DEVICES_ARE_TRACED = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 13)
# torch's compiler runs it in compiled code, where the cache of `default_device_functions` has no effect.
LIST_DEFAULT_DEVICE_FUNCTIONS = _default_device._device_constructors.__wrapped__


def default_device_functions() -> frozenset[Callable[..., Any]]:
    """The functions that use the device of `torch.set_default_device`.

    Calling this before patching also fills torch's cache with the original functions. Filled later, it would hold our
    wrappers, and `with torch.device(...)` would not recognize the functions that torch passes to it.
    Expiry: a public list of factory functions.
    """
    return frozenset(_default_device._device_constructors())


def device_schemas() -> dict[str, list[Any]]:
    """All overloads of each public operator of which at least one has a `device` argument, by name without `aten::`.

    Reading only the schemas of public names is faster than reading all schemas, and activation waits for it.
    Expiry: public access to operator schemas.
    """
    names = dict.fromkeys((*dir(torch), *dir(RealTensor), *(f"fft_{name}" for name in dir(torch.fft))))
    found = {}
    for name in names:
        schemas = torch._C._jit_get_schemas_for_operator(f"aten::{name}")
        if any(argument.name == "device" for schema in schemas for argument in schema.arguments):
            found[name] = schemas
    return found


# Whether a function mode is active in this thread. Expiry: a public function.
in_function_mode = torch._C._is_torch_function_mode_enabled
# A context in which no function mode receives calls.
unseen_by_modes = torch._C.DisableTorchFunction


def innermost_function_mode() -> Any:
    """The innermost active function mode. Call it only if one is active. Expiry: a public function."""
    return torch._C._get_function_stack_at(torch._C._len_torch_function_stack() - 1)


def has_device_context() -> bool:
    """Whether `with torch.device(...)` or `torch.set_default_device(...)` currently supplies missing devices.

    Expiry: a `torch.get_default_device()` that distinguishes "not set" from "cpu".
    """
    depth = torch._C._len_torch_function_stack()
    return depth > 0 and any(
        isinstance(torch._C._get_function_stack_at(level), DeviceContext) for level in range(depth)
    )


def forget_default_device() -> None:
    """Call after `torch.set_default_device(None)`: torch 2.9 stores None, and `torch.get_default_device()` then fails.

    Expiry: torch 2.9.
    """
    kept = getattr(torch, "_GLOBAL_DEVICE_CONTEXT", None)
    if kept is not None and getattr(kept, "device_context", True) is None:
        del kept.device_context


def when_initialized(kind: str, call: Callable[[], object]) -> None:
    """Call a function when devices of a type are used for the first time in this process, or now if they are in use.

    torch itself queues such calls, and runs them in the thread that uses the device. Expiry: a public function.
    """
    torch.get_device_module(kind)._lazy_call(call)


def renew_initialization_lock_after_fork(kind: str) -> None:
    """Let a forked child initialize a device while its parent did so at the time of the fork.

    Expiry: a torch whose devices can be used after a fork.
    """
    module = torch.get_device_module(kind)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lambda: setattr(module, "_initialization_lock", threading.Lock()))


def cuda_memory_by_nvml(index: int) -> tuple[int, int] | None:
    """The free and total memory of a GPU, read without starting CUDA on it; None if only CUDA knows.

    The UUID is how CUDA and NVML name the same GPU, whatever CUDA_VISIBLE_DEVICES leaves out.
    """
    identity = getattr(torch.cuda.get_device_properties(index), "uuid", None)
    if "cuda" in virtual_types or torch.version.hip or identity is None:
        return None
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    handle, memory = ctypes.c_void_p(), (ctypes.c_ulonglong * 3)()  # total, free, used
    failed = (
        nvml.nvmlInit_v2()
        or nvml.nvmlDeviceGetHandleByUUID(f"GPU-{identity}".encode(), ctypes.byref(handle))
        or nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory))
    )
    return None if failed else (int(memory[1]), int(memory[0]))


def parse_to(*args: Any, **kwargs: Any) -> tuple[torch.device | None, torch.dtype | None, bool, Any]:
    """The device, dtype, `non_blocking` and memory format among the arguments of `Tensor.to`.

    `copy` is accepted and left out. Expiry: a public function that parses them.
    """
    return torch._C._nn._parse_to(*args, **kwargs)


def lost_by_fork(kind: str) -> bool:
    """Whether this process was forked from one that had used devices of this type, which cannot be shared.

    torch marks such a child at the fork and raises an error at its first use of the device. Expiry: a public function.
    """
    asked = getattr(getattr(torch, kind, None), "_is_in_bad_fork", None)
    return asked is not None and bool(asked())


def cuda_devices_by_nvml() -> int | None:
    """The number of NVIDIA GPUs that torch can use, read without CUDA; None if only CUDA knows, or is initialized.

    `torch.cuda.is_available()` initializes CUDA. After that, setting CUDA_VISIBLE_DEVICES has no effect, and forked
    children have no GPU. Expiry: a public function that does not initialize CUDA and checks the driver.
    """
    # Reads the flag itself, because it is also set in the forked child of a process that uses CUDA.
    if "cuda" in virtual_types or torch.version.hip or torch.cuda.is_initialized() or torch.cuda._initialized:
        return None
    found = int(getattr(torch.cuda, "_device_count_nvml", lambda: -1)())
    if found < 0:
        return None if _has_driver() else 0
    return found if found and _driver_runs_this_torch() else 0


def _has_driver() -> bool:
    """Whether CUDA has a driver, on a machine without NVIDIA's management library. Loading it starts nothing."""
    if sys.platform != "linux":
        return True
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def _driver_runs_this_torch() -> bool:
    """Whether the driver is new enough for this torch. NVML is available, because it has just counted the GPUs."""
    version = ctypes.c_int()
    ask = getattr(ctypes.CDLL("libnvidia-ml.so.1"), "nvmlSystemGetCudaDriverVersion_v2", None)
    if ask is None or ask(ctypes.byref(version)):  # the library lacks the function, or the call failed
        return False
    return version.value // 1000 >= int(str(torch.version.cuda).partition(".")[0])


def forked_as_worker() -> bool:
    """Whether this process has just been forked as a worker of a `DataLoader`: the fork is still on the stack.

    Expiry: a public hook that runs first in a worker.
    """
    starter = dataloader._MultiProcessingDataLoaderIter.__init__.__code__
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not starter:
        frame = frame.f_back
    return frame is not None


def weights_only_cache_clear() -> None:
    """Clear the safe unpickler's cache of allowed classes: it keeps the first `torch.device` class that it has seen.

    Expiry: a cache that holds names instead of objects.
    """
    from torch import _weights_only_unpickler

    _weights_only_unpickler._get_allowed_globals.cache_clear()


def place_storage(storage: Any, device: Any) -> Any:
    """Move a storage to a device, as `torch.load` does for its location tags.

    `storage.to(device=...)` would be the obvious call, but it needs `torch.mps.device`, which does not exist.
    Expiry: storages that move to every device with the same call.
    """
    if isinstance(storage, torch.TypedStorage):
        placed = place_storage(storage._untyped_storage, device)
        return torch.TypedStorage(wrap_storage=placed, dtype=storage.dtype, _internal=True)
    if device == "cpu" or (isinstance(device, RealDevice) and device.type == "cpu"):
        return storage if storage.device.type == "cpu" else storage.cpu()
    tag = str(device) if isinstance(device, (RealDevice, str)) else device  # torch raises its own error for others
    return torch.serialization.default_restore_location(storage, tag)


def untyped_of(storage: Any) -> Any:
    """The untyped storage of a typed one; the public ways to it warn. Expiry: the removal of typed storages."""
    return storage._untyped_storage


def legacy_tensor_types() -> Iterator[tuple[ModuleType, str]]:
    """The legacy tensor types (`torch.FloatTensor`, `torch.cuda.FloatTensor`, …) with the modules that hold them.

    Expiry: their removal.
    """
    for kind in sorted(torch._tensor_classes, key=str):
        yield sys.modules[kind.__module__], kind.__name__


# torch.utils.checkpoint saves the random state of a device only if its module has this attribute. torch.mps lacks it,
# so dropout would draw other numbers in the second forward. Expiry: the attribute in `torch.mps`, or a checkpoint that
# does not read it.
INITIALIZED = "_initialized"


class DispatchMode(_dispatch.TorchDispatchMode):
    """A mode that receives every operator. Expiry: a public dispatch mode.

    torch disables its compiler inside such modes and imports it for that purpose: 820 modules at the first operator.
    This class disables the compiler only after a program has imported it.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        seen: Callable[..., Any] = cls.__dict__["__torch_dispatch__"]
        untraced = torch._disable_dynamo(seen, recursive=True)

        def dispatch(self: Any, *args: Any, **kwargs: Any) -> Any:
            return (untraced if "torch._dynamo" in sys.modules else seen)(self, *args, **kwargs)

        cls.__torch_dispatch__ = dispatch


MpsEvent = torch.mps.event.Event


def stream_type_number(device_type: str) -> int:
    """The number of a device type in `torch.Stream`. Expiry: `torch.Stream(device=...)` with an id."""
    return int(torch._C._autograd.DeviceType.__members__[device_type.upper()].value)


def mps_generator() -> torch.Generator:
    """The default generator of MPS operators. Expiry: `torch.mps.default_generators`."""
    return torch.mps._get_default_mps_generator()


def mps_name() -> str:
    """Metal's name of the device. Expiry: `torch.mps.get_device_name`."""
    get_name = getattr(torch._C, "_mps_get_name", None)
    return str(get_name()) if get_name is not None else ""


def mps_core_count() -> int:
    """The number of GPU cores. Expiry: `torch.mps.get_device_properties`."""
    get_core_count = getattr(torch._C, "_mps_get_core_count", None)
    return int(get_core_count()) if get_core_count is not None else 0


def wraps_tensors(kind: type) -> bool:
    """Whether a tensor class wraps other tensors instead of memory. Expiry: none, such classes are made this way."""
    dispatch = getattr(kind, "__torch_dispatch__", None)
    return dispatch is not None and dispatch is not torch._C._disabled_torch_dispatch_impl


def storage_of(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """A tensor's storage, or None if it has none (sparse tensors)."""
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):  # sparse, nested, functorch wrappers
        return None


SHOWS_SAVED_TENSORS = hasattr(torch._C._autograd.SavedTensor, "data")


def held_by_autograd(tensors: Sequence[torch.Tensor]) -> Iterator[torch.Tensor]:
    """Tensors that C++ holds for these: gradients, and tensors that their graphs saved for the backward pass.

    Tensors that hooks have packed (checkpoints, offloading) are not unpacked. torch 2.9 can only show saved tensors by
    unpacking them, which may recompute them, so there only gradients are included. Expiry: memory statistics of the
    CPU.
    """
    yield from (tensor.grad for tensor in tensors if tensor.is_leaf and tensor.grad is not None)
    if not SHOWS_SAVED_TENSORS:
        return
    pending = {tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None}
    seen: set[Any] = set()
    while pending:
        node = pending.pop()
        seen.add(node)
        pending.update(
            following for following, _ in node.next_functions if following is not None and following not in seen
        )
        for name in _saved_names(node.__class__):
            try:
                saved = getattr(node, name)
                given = [each.data for each in (saved if isinstance(saved, (list, tuple)) else (saved,))]
            except RuntimeError:  # the backward pass has freed it
                continue
            yield from (each for each in given if isinstance(each, RealTensor))


@functools.cache
def _saved_names(kind: type) -> tuple[str, ...]:
    return tuple(name for name in dir(kind) if name.startswith("_raw_saved_"))


def memory_key(tensor: torch.Tensor) -> int:
    """A number that is the same for all tensors that share memory. Sparse tensors have no storage to share.

    Expiry: a public identity of storages.
    """
    return int(tensor.untyped_storage()._cdata) if tensor.layout is torch.strided else id(tensor)


def same_memory(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of the same memory that keeps this shape if the given one is reshaped in place."""
    return tensor.detach() if tensor.layout is torch.strided else tensor


def whole_memory(tensor: torch.Tensor) -> torch.Tensor:
    """The whole storage of a tensor as a flat tensor of bytes, or the tensor if it has no storage."""
    if tensor.layout is not torch.strided:
        return tensor
    storage = tensor.untyped_storage()
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage, 0, (storage.nbytes(),), (1,))


def extent(tensor: torch.Tensor) -> int:
    """The bytes from the start of a tensor's storage to its last element; 0 without a storage or elements."""
    if tensor.layout is not torch.strided or tensor.is_nested or not tensor.numel():
        return 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (int(tensor.storage_offset()) + int(last) + 1) * tensor.element_size()


def is_constant_zero(tensor: torch.Tensor) -> bool:
    """Whether a tensor stands for zeros without memory. It cannot be written. Expiry: a public test."""
    return tensor._is_zerotensor()


def tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors in an operator's result or argument."""
    if isinstance(value, RealTensor):
        return [value]
    return [tensor for each in value for tensor in tensors_in(each)] if isinstance(value, (list, tuple)) else []


def replacing_tensors(value: Any, replacement: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """An operator's argument with a replacement for each of its tensors."""
    if isinstance(value, RealTensor):
        return replacement(value)
    if isinstance(value, (list, tuple)):
        return type(value)(replacing_tensors(each, replacement) for each in value)
    return value


def callgrind_toggle() -> None:
    """Start or stop collecting. For `bench.calls` only; `torch.utils.benchmark` has no public function for it."""
    torch._C._valgrind_toggle()


def callgrind_dump() -> None:
    """Stop collecting and write the results to a separate file."""
    torch._C._valgrind_toggle_and_dump_stats()


# --- the public surface --------------------------------------------------------------------------------------------

# The class of `torch.FloatTensor` and its like. Expiry: their removal.
LEGACY_TENSOR_METACLASS = type(torch.FloatTensor)


def overridable_functions() -> dict[str, list[str]]:
    """Names of the functions that tensor subclasses can override, by the module that holds them."""
    found: dict[str, list[str]] = {}
    for holder, functions in torch.overrides.get_overridable_functions().items():
        path = getattr(holder, "__name__", "")
        if path.startswith("torch"):
            found[path] = [getattr(function, "__name__", "") for function in functions]
    return found


def contents_of(tensor: Any) -> tuple[Any, ...] | None:
    """Values that change if a tensor is written to: its version, which `.data` does not share, and its first values.

    None for tensors without their own values, and during tracing or a transformation. Modes of the program do not
    receive these calls.
    """
    if type(tensor) not in (RealTensor, torch.nn.Parameter) or torch.compiler.is_compiling():
        return None
    if torch._C._functorch.peek_interpreter_stack() is not None or torch._C._len_torch_dispatch_stack():
        return None
    with torch._C.DisableTorchFunction(), torch.no_grad():
        if tensor.layout is not torch.strided or tensor.is_meta or tensor.is_quantized or tensor.is_inference():
            return None
        first = tensor.detach()
        while first.dim() and first.numel():
            first = first[:_FIRST_VALUES] if first.dim() == 1 else first[0]
            if first.dim() == 1 and first.shape[0] <= _FIRST_VALUES:
                break
        return tensor._version, repr(first.tolist())


_FIRST_VALUES = 8


def is_its_only_owner(tensor: Any) -> bool:
    """Whether no other tensor shares the memory of this one. Expiry: a public count of a storage's users."""
    with torch._C.DisableTorchFunction():
        return _users(tensor) <= _users(torch.empty(1, device="cpu"))


def _users(tensor: Any) -> int:
    return int(torch._C._storage_Use_Count(tensor.untyped_storage()._cdata))


def is_contiguous_in_its_format(tensor: Any) -> bool:
    """Whether a tensor has no gaps in the memory format that torch's C++ code suggests for it."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    wanted = formats.get(tensor.dim(), torch.contiguous_format)
    return bool(tensor.is_contiguous() or tensor.is_contiguous(memory_format=wanted))


def settle_triton() -> None:
    """Make torch check now whether Triton is installed. It caches the result, so later imports do not change it.

    Expiry: none as long as torch detects Triton by importing it.
    """
    from torch.utils import _triton

    _triton.has_triton_package()
    _triton.get_triton_version()


def packed_attention(
    tensors: Sequence[torch.Tensor],
    starts: Sequence[torch.Tensor],
    longest: Sequence[int],
    scale: float | None,
    causal: bool,
) -> torch.Tensor | None:
    """Attention of packed sequences with CUDA's flash kernel; None if torch would not choose that kernel.

    `tensors`: queries, keys and values, with shape (total length, heads, width). `starts` and `longest`: for queries
    and for keys. torch.nn.attention.varlen (2.10) is the public form. Expiry: when it accepts fewer heads for keys than
    for queries in every supported version.
    """
    query, key, value = tensors
    if query.device.type != "cuda" or "cuda" in virtual_types:
        return None
    grouped = query.shape[1] != key.shape[1]
    one = (each.transpose(0, 1).unsqueeze(0) for each in tensors)
    asked = torch.backends.cuda.SDPAParams(*one, None, 0.0, causal, grouped)
    if not torch.backends.cuda.can_use_flash_attention(asked):
        return None
    bounds = [each.to(torch.int32) for each in starts]
    kernel = torch.ops.aten._flash_attention_forward
    out: torch.Tensor = kernel(query, key, value, *bounds, *longest, 0.0, causal, False, scale=scale)[0]
    return out
