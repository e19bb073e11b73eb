"""The Python side of virtual `xpu`: torch.xpu runs its own code on torch._C functions, as on an Intel build."""

from __future__ import annotations

import torch

from torchdevice.virtual import accelerator, compilers, distributed, memory, storage, streams
from torchdevice.virtual.accelerator import constant
from torchdevice.virtual.library import Library
from torchdevice.virtual.patches import on_base, put


class DeviceProperties:
    """What `torch.xpu.get_device_properties` returns."""

    def __init__(self, index: int, total_memory: int) -> None:
        self.name = "Virtual XPU device"
        self.platform_name, self.vendor, self.driver_version = "TorchDevice", "TorchDevice", "0"
        self.type, self.version = "gpu", "0"
        self.device_id, self.architecture = index, 0
        self.uuid = f"00000000-0000-0000-0000-{index:012d}"
        self.total_memory = total_memory
        self.local_mem_size = 128 << 10
        self.max_compute_units = self.gpu_eu_count = 512
        self.gpu_subslice_count = 64
        self.max_work_group_size, self.max_num_sub_groups = 1024, 64
        self.sub_group_sizes = [16, 32]
        self.has_fp16 = self.has_fp64 = self.has_atomic64 = self.has_bfloat16_conversions = True
        self.has_subgroup_matrix_multiply_accumulate = self.has_subgroup_2d_block_io = False
        self.has_subgroup_matrix_multiply_accumulate_tensor_float32 = False

    def __repr__(self) -> str:
        return f"_XpuDeviceProperties(name='{self.name}', total_memory={self.total_memory >> 20}MB)"


def install(lib: Library, count: int) -> None:
    capacity = memory.limit_from_environment() or memory.physical_memory()
    table = accelerator.name_functions(
        {
            **accelerator.devices("xpu", lib, count, [DeviceProperties(i, capacity) for i in range(count)]),
            **accelerator.memory_functions("xpu", lib, count, capacity),
            **accelerator.streams("xpu", lib),
            "_xpu_getArchFlags": constant("pvc"),
        }
    )
    put(torch._C, table)
    put(
        torch._C,
        {
            "_has_xpu": True,
            "_XpuDeviceProperties": DeviceProperties,
            "_XpuStreamBase": streams.stream_base("xpu", "sycl_queue"),
            "_XpuEventBase": streams.event_base(lib, "xpu", "sycl_event"),
            "_XPUGraph": streams.graph_base(lib, "_XPUGraph"),
            "_XPUMemPool": accelerator.MemPoolBase,
        },
    )
    on_base(torch.xpu.streams.Stream, torch._C._XpuStreamBase)
    on_base(torch.xpu.streams.Event, torch._C._XpuEventBase)
    # Graphs and pools came to torch.xpu after 2.9.
    if (graphs := getattr(torch.xpu, "graphs", None)) is not None:
        on_base(graphs.XPUGraph, torch._C._XPUGraph)
    if hasattr(torch.xpu.memory, "MemPool"):
        on_base(torch.xpu.memory.MemPool, torch._C._XPUMemPool)
    put(
        torch.xpu,
        {
            "_exchange_device": table["_xpu_exchangeDevice"],
            "_maybe_exchange_device": table["_xpu_maybeExchangeDevice"],
            "_get_device_properties": table["_xpu_getDeviceProperties"],
            "_XpuDeviceProperties": DeviceProperties,
            "_cached_device_count": count,
        },
    )
    # torch refuses two accelerators compiled in, and tells a CUDA build by this name: an Intel build lacks it.
    if hasattr(torch._C, "_cuda_getDeviceCount"):
        del torch._C._cuda_getDeviceCount
    # It remembers the answer from before.
    if hasattr(torch.xpu.device_count, "cache_clear"):
        torch.xpu.device_count.cache_clear()
    storage.install("xpu", lib)
    compilers.install("xpu")
    distributed.install("xpu")
