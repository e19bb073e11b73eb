"""The Python side of virtual `cuda`: torch.cuda runs its own code on the torch._C functions of the tables below.

Only where torch.cuda holds an object that C makes (streams, graphs, cudart, NVTX, cuDNN's version) is something put
into its place. Legacy tensor types are in legacy.py, collectives in distributed.py, compilers in compilers.py.
"""

from __future__ import annotations

import enum
from types import SimpleNamespace

import torch

from torchdevice.answers.devices import CUDA_VERSION, CUDNN_VERSION
from torchdevice.virtual import accelerator, comm, compilers, distributed, legacy, memory, storage, streams
from torchdevice.virtual.accelerator import constant, nothing
from torchdevice.virtual.library import Library
from torchdevice.virtual.patches import on_base, put

ARCHITECTURES = "sm_80 sm_86 sm_90"


class DeviceProperties:
    """What `torch.cuda.get_device_properties` returns: an Ampere-class device, so that programs choose bfloat16."""

    def __init__(self, index: int, total_memory: int) -> None:
        self.name = "Virtual CUDA device"
        self.major, self.minor = 8, 0
        self.total_memory = total_memory
        self.multi_processor_count = 108
        self.max_threads_per_multi_processor = 2048
        self.max_threads_per_block = 1024
        self.regs_per_multiprocessor = 65536
        self.shared_memory_per_block = 49152
        self.shared_memory_per_block_optin = 166912
        self.shared_memory_per_multiprocessor = 167936
        self.warp_size = 32
        self.L2_cache_size = 40 << 20
        self.clock_rate, self.memory_clock_rate, self.memory_bus_width = 1410000, 1215000, 5120
        self.is_integrated = self.is_multi_gpu_board = 0
        self.gcnArchName = ""
        self.pci_bus_id, self.pci_device_id, self.pci_domain_id = index, 0, 0
        self.uuid = f"00000000-0000-0000-0000-{index:012d}"

    def __repr__(self) -> str:
        return (
            f"_CudaDeviceProperties(name='{self.name}', major={self.major}, minor={self.minor}, "
            f"total_memory={self.total_memory >> 20}MB, multi_processor_count={self.multi_processor_count}, "
            f"uuid={self.uuid}, L2_cache_size={self.L2_cache_size >> 20}MB)"
        )


class CudaError(enum.IntEnum):
    """CUDA's enumeration names one value, and takes every other as well."""

    success = 0

    @classmethod
    def _missing_(cls, value: object) -> CudaError:
        made = int.__new__(cls, value)  # type: ignore[call-overload]
        made._name_, made._value_ = "???", value
        return made


_ERRORS = {0: "no error", 1: "invalid argument", 2: "out of memory", 3: "initialization error", 600: "device not ready"}


def _cudart(lib: Library, capacity: int) -> SimpleNamespace:
    ok = constant(CudaError.success)
    return SimpleNamespace(
        cudaError=CudaError,
        cudaGetErrorString=lambda code: _ERRORS.get(int(code), "unknown error"),
        cudaMemGetInfo=lambda device: memory.free_and_total(lib, device, capacity),
        **dict.fromkeys(("cudaProfilerStart", "cudaProfilerStop", "cudaHostRegister", "cudaHostUnregister"), ok),
        **dict.fromkeys(("cudaStreamCreate", "cudaStreamDestroy"), ok),
    )


def _nvtx() -> SimpleNamespace:
    depth = [0]

    def push(_: str) -> int:
        depth[0] += 1
        return depth[0] - 1

    def pop() -> int:
        depth[0] -= 1
        return depth[0]

    return SimpleNamespace(
        rangePushA=push, rangePop=pop, rangeStartA=constant(0), rangeEnd=nothing, markA=nothing,
        deviceRangeStart=constant(0), deviceRangeEnd=nothing,
    )  # fmt: skip


# Settings of cuDNN that torch keeps in its CUDA part; the other flags of torch.backends.cudnn are in every build.
_CUDNN_LIMITS = {
    "_cuda_get_cudnn_benchmark_limit": constant(10),
    "_cuda_set_cudnn_benchmark_limit": nothing,
    "_cuda_get_conv_benchmark_empty_cache": constant(True),
    "_cudnn_set_conv_benchmark_empty_cache": nothing,
}


def install(lib: Library, count: int) -> None:
    capacity = memory.limit_from_environment() or memory.physical_memory()
    table = accelerator.name_functions(
        {
            **accelerator.devices("cuda", lib, count, [DeviceProperties(i, capacity) for i in range(count)]),
            **accelerator.memory_functions("cuda", lib, count, capacity),
            **accelerator.streams("cuda", lib),
            **comm.TABLE,
            "_cuda_getArchFlags": constant(ARCHITECTURES),
            "_cuda_getCompiledVersion": constant(12080),
            **_CUDNN_LIMITS,
        }
    )
    put(torch._C, table)
    put(
        torch._C,
        {
            "_has_cuda": True,  # torch.backends.cuda.is_built()
            "_has_cudnn": True,  # torch.backends.cudnn.is_available(); the C++ hooks still answer no
            "_cudart": _cudart(lib, capacity),
            "_nvtx": _nvtx(),
            "_CudaDeviceProperties": DeviceProperties,
            "_CudaStreamBase": streams.stream_base("cuda", "cuda_stream"),
            "_CudaEventBase": streams.event_base(lib, "cuda", "cuda_event"),
            "_CUDAGraph": streams.graph_base(lib, "_CUDAGraph"),
            "_MemPool": accelerator.MemPoolBase,
            # named by torch._inductor.cudagraph_trees when it is imported; graphs here never make one
            "_cuda_CUDAAllocator_AllocatorState": type("_cuda_CUDAAllocator_AllocatorState", (), {}),
        },
    )
    stream = on_base(torch.cuda.streams.Stream, torch._C._CudaStreamBase)
    on_base(torch.cuda.streams.ExternalStream, stream)
    on_base(torch.cuda.streams.Event, torch._C._CudaEventBase)
    on_base(torch.cuda.graphs.CUDAGraph, torch._C._CUDAGraph)
    on_base(torch.cuda.memory.MemPool, torch._C._MemPool)
    put(
        torch.cuda,
        {
            "_cudart": torch._C._cudart,
            "_exchange_device": table["_cuda_exchangeDevice"],
            "_maybe_exchange_device": table["_cuda_maybeExchangeDevice"],
            "_get_device_properties": table["_cuda_getDeviceProperties"],
            "_CudaDeviceProperties": DeviceProperties,
            "_cached_device_count": count,  # NVML would count the real cards that are hidden
        },
    )
    put(torch.cuda.nvtx, {"_nvtx": torch._C._nvtx})
    # torch.backends.cudnn is an object of properties around the module.
    put(torch.backends.cudnn.m, {"_init": constant(True), "__cudnn_version": CUDNN_VERSION})
    if torch.version.cuda is None:
        put(torch.version, {"cuda": CUDA_VERSION})
    storage.install("cuda", lib)
    legacy.install()
    compilers.install("cuda")
    distributed.install("cuda")
