"""Replacements for CUDA's libraries: the runtime (cudart), NVTX, cuBLAS, cuDNN, tunable operators."""

from __future__ import annotations

import ctypes
import enum
import itertools
import threading
from types import SimpleNamespace
from typing import Any

import torch

from torchdevice.answers.device import Device, Table, constant, nothing, refusal


class CudaStatus(enum.IntEnum):
    """`cudart().cudaError`: the codes that Python code compares with. Every other number is a code without a name."""

    success = 0
    invalidValue = 1  # noqa: N815 - CUDA's own names
    memoryAllocation = 2  # noqa: N815
    initializationError = 3  # noqa: N815
    notReady = 600  # noqa: N815
    unknown = 999

    @classmethod
    def _missing_(cls, value: object) -> CudaStatus:
        made = int.__new__(cls, value)  # type: ignore[call-overload]
        made._name_, made._value_ = "???", value
        return made


_TEXTS = {
    CudaStatus.success: "no error",
    CudaStatus.invalidValue: "invalid argument",
    CudaStatus.memoryAllocation: "out of memory",
    CudaStatus.initializationError: "initialization error",
    CudaStatus.notReady: "device not ready",
}


def cudart(device: Device) -> SimpleNamespace:
    """The runtime module. Profiler calls return success and do nothing. The device implements page locking."""
    succeed = constant(CudaStatus.success)

    def register(address: int, size: int, flags: int = 0) -> CudaStatus:
        device.pin(address, size)
        return CudaStatus.success

    def unregister(address: int) -> CudaStatus:
        device.unpin(address)
        return CudaStatus.success

    def create_stream(pointer: int) -> CudaStatus:
        ctypes.c_void_p.from_address(pointer).value = torch.cuda.Stream().cuda_stream
        return CudaStatus.success

    names = ("cudaProfilerStart", "cudaProfilerStop", "cudaProfilerInitialize")
    return SimpleNamespace(
        cudaError=CudaStatus,
        cudaOutputMode=SimpleNamespace(KeyValuePair=0, CSV=1),
        cudaGetErrorString=lambda code: _TEXTS.get(CudaStatus(int(code)), "unknown error"),
        cudaMemGetInfo=device.free_and_total,
        cudaHostRegister=register,
        cudaHostUnregister=unregister,
        cudaStreamCreate=create_stream,
        cudaStreamDestroy=succeed,
        **dict.fromkeys(names, succeed),
    )


def nvtx() -> SimpleNamespace:
    """The NVTX module. Ranges nest per thread and return their depth. They are not recorded."""
    local = threading.local()
    handles = itertools.count(1)

    def push(_: str) -> int:
        local.depth = getattr(local, "depth", 0) + 1
        return int(local.depth) - 1

    def pop() -> int:
        local.depth = getattr(local, "depth", 0) - 1
        return int(local.depth)

    return SimpleNamespace(
        rangePushA=push,
        rangePop=pop,
        rangeStartA=lambda _: next(handles),
        rangeEnd=nothing,
        markA=nothing,
        deviceRangeStart=lambda *_: next(handles),
        deviceRangeEnd=nothing,
    )


def green_context_names() -> Table:
    """The functions that torch.cuda.green_contexts calls before it calls the driver."""
    return {"_is_locality_software_supported": constant(False)}


def _setting(value: Any, setter: str, getter: str) -> Table:
    """A setter and a getter for a stored value."""
    kept = [value]

    def set_value(value: Any, *_: Any) -> None:
        kept[0] = value

    return {setter: set_value, getter: lambda *_: kept[0]}


def tunable_functions() -> Table:
    """The settings of tunable operators. They are only stored: without cuBLAS nothing is tuned."""
    name = "_cuda_tunableop_"
    return {
        **_setting(False, f"{name}enable", f"{name}is_enabled"),
        **_setting(True, f"{name}tuning_enable", f"{name}tuning_is_enabled"),
        **_setting(False, "_cuda_record_untuned_enable", "_cuda_record_untuned_is_enabled"),
        **_setting("", f"{name}set_filename", f"{name}get_filename"),
        **_setting(30, f"{name}set_max_tuning_duration", f"{name}get_max_tuning_duration"),
        **_setting(100, f"{name}set_max_tuning_iterations", f"{name}get_max_tuning_iterations"),
        **_setting(-1, f"{name}set_rotating_buffer_size", f"{name}get_rotating_buffer_size"),
        **_setting(False, f"{name}wildcard_fallback_enable", f"{name}wildcard_fallback_is_enabled"),
        **_setting(1, f"{name}set_cublaslt_requested_algo_count", f"{name}get_cublaslt_requested_algo_count"),
        f"{name}push_dynamic_dims_mask": nothing,
        f"{name}pop_dynamic_dims_mask": nothing,
        f"{name}clear_all": nothing,
        f"{name}get_results": constant(()),
        f"{name}get_validators": constant(()),
        f"{name}read_file": constant(False),
        f"{name}write_file": constant(False),
        f"{name}write_file_on_exit": nothing,
        f"{name}set_numerical_check_tolerances": nothing,
    }


def library_functions() -> Table:
    """Handles and settings of cuBLAS, cuSOLVER and cuDNN. Settings are only stored, and handles are 0."""
    jiterator = "_cuda_jiterator_compile_and_launch_kernel"
    storage = ("register_buffer", "deregister_buffer", "register_handle", "deregister_handle", "load_storage")
    return {
        "_cuda_getCurrentBlasHandle": constant(0),
        "_cuda_getCurrentSolverHandle": constant(0),
        "_has_gds": False,
        **{
            f"_gds_{name}": refusal(f"_gds_{name}", "GPUDirect Storage needs an NVIDIA driver")
            for name in (*storage, "save_storage")
        },
        jiterator: refusal(jiterator, "CUDA source cannot run on this device"),
        **_setting(8519680, "_cuda_setCublasWorkspaceSize", "_cuda_getCublasWorkspaceSize"),
        **_setting(1048576, "_cuda_setCublasLtWorkspaceSize", "_cuda_getCublasLtWorkspaceSize"),
        **_setting(10, "_cuda_set_cudnn_benchmark_limit", "_cuda_get_cudnn_benchmark_limit"),
        **_setting(True, "_cudnn_set_conv_benchmark_empty_cache", "_cuda_get_conv_benchmark_empty_cache"),
    }
