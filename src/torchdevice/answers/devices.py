"""Functions on devices: count, current device, properties, indices, load and temperature."""

from __future__ import annotations

import os
import uuid
import zlib
from collections.abc import Callable
from numbers import Integral
from typing import Any

import torch

from torchdevice._torch.core import RealDevice
from torchdevice.answers.device import Device, Table, constant, nothing, system

# The versions that user code sees on a host without CUDA. Capability 8.0 was the first with bfloat16 and TF32. It has
# no float8. Both match what the targets can do.
CUDA_VERSION, CUDNN_VERSION = "12.8", 91002
NCCL_VERSION = (2 << 32) | (27 << 16) | 3
CAPABILITY = (8, 0)
INVALID_DEVICE, WRONG_THREAD = 101, 908  # cudaErrorInvalidDevice, cudaErrorStreamCaptureWrongThread
ARCHITECTURES = {"cuda": "sm_80", "xpu": "pvc"}


class CudaDeviceProperties:
    """The result of `torch.cuda.get_device_properties`: properties of the target, with CUDA's field names.

    Fields that only CUDA has (warps, registers, shared memory) have the values of `CAPABILITY`.
    """

    def __init__(self, device: Device, index: int) -> None:
        found = device.describe(index)
        self.name = found.name
        self.major, self.minor = CAPABILITY
        self.total_memory = found.total_memory
        self.multi_processor_count = found.cores
        self.max_threads_per_multi_processor = 2048
        self.max_threads_per_block = 1024
        self.regs_per_multiprocessor = 65536
        self.shared_memory_per_block = 49152
        self.shared_memory_per_block_optin = 166912
        self.shared_memory_per_multiprocessor = 167936
        self.warp_size = 32
        self.L2_cache_size = found.l2_bytes
        self.clock_rate, self.memory_clock_rate = found.clock_khz, found.memory_clock_khz
        self.memory_bus_width = found.memory_bus_width
        self.is_integrated, self.is_multi_gpu_board = int(found.integrated), 0
        self.gcnArchName = ""
        self.pci_bus_id, self.pci_device_id, self.pci_domain_id = index, 0, 0
        self.uuid = CudaUuid(_uuid(found.name, index))

    def __repr__(self) -> str:
        return (
            f"_CudaDeviceProperties(name='{self.name}', major={self.major}, minor={self.minor}, "
            f"total_memory={self.total_memory >> 20}MB, multi_processor_count={self.multi_processor_count}, "
            f"uuid={self.uuid}, pci_bus_id={self.pci_bus_id}, pci_device_id={self.pci_device_id}, "
            f"pci_domain_id={self.pci_domain_id}, L2_cache_size={self.L2_cache_size >> 20}MB)"
        )


class CudaUuid(str):
    """A UUID as text with an attribute `bytes`, as in torch.cuda."""

    @property
    def bytes(self) -> list[int]:
        return list(uuid.UUID(self).bytes)


class XpuDeviceProperties:
    """The result of `torch.xpu.get_device_properties`."""

    def __init__(self, device: Device, index: int) -> None:
        found = device.describe(index)
        self.name = found.name
        self.platform_name, self.vendor, self.driver_version = "TorchDevice", "TorchDevice", "0"
        self.type, self.version = "cpu" if device.type == "cpu" else "gpu", "0"
        self.device_id, self.architecture = index, 0
        self.uuid = _uuid(found.name, index)
        self.total_memory = found.total_memory
        self.local_mem_size = 128 << 10
        self.max_compute_units = self.gpu_eu_count = self.gpu_subslice_count = found.cores
        self.max_work_group_size, self.max_num_sub_groups, self.sub_group_sizes = 1024, 64, [16, 32]
        self.has_fp16 = self.has_atomic64 = self.has_bfloat16_conversions = True
        self.has_fp64 = device.type != "mps"
        self.has_subgroup_matrix_multiply_accumulate = self.has_subgroup_2d_block_io = False
        self.has_subgroup_matrix_multiply_accumulate_tensor_float32 = False

    def __repr__(self) -> str:
        return (
            f"_XpuDeviceProperties(name='{self.name}', platform_name='{self.platform_name}', type='{self.type}', "
            f"device_id=0x{self.device_id:X}, uuid={self.uuid}, driver_version='{self.driver_version}', "
            f"total_memory={self.total_memory >> 20}MB, max_compute_units={self.max_compute_units})"
        )


PROPERTIES = {"cuda": CudaDeviceProperties, "xpu": XpuDeviceProperties}


def _uuid(name: str, index: int) -> str:
    """A UUID that is the same for the same device in every run, like that of real hardware."""
    return f"00000000-0000-0000-{zlib.crc32(name.encode()) & 0xFFFF:04x}-{index:012d}"


# Indices below this number are accepted even if the target has fewer devices, because programs name the GPUs of the
# machine that they were written for. Higher indices raise an error, so that a program that tries indices until CUDA
# raises one terminates.
FOLDED = 8


def accelerator_error(says: str, code: int) -> torch.AcceleratorError:
    """The error that torch raises for one of CUDA's functions. `code`: its number in cudaError_t."""
    error = torch.AcceleratorError(says)
    error.error_code = code
    return error


def fold(index: int, count: int, current: int) -> int:
    """Maps an index that the target lacks to the current device, as the policy does."""
    if index >= max(count, FOLDED, int(os.environ.get("LOCAL_WORLD_SIZE") or 0)):
        raise accelerator_error("CUDA error: invalid device ordinal", INVALID_DEVICE)
    return index if index < count else current


# Functions that describe a device, and the first index that they reject if the target has fewer devices.
DESCRIBING = {"get_device_properties": 0, "get_device_name": FOLDED, "get_device_capability": FOLDED}


def refusing_numbers(describe: Callable[..., Any], device: Device, least: int) -> Callable[..., Any]:
    """Wraps `describe`, so that an index beyond the device count raises torch's own error."""

    def described(asked: Any = None) -> Any:
        number, first = (asked, least) if isinstance(asked, int) else (_number_of(asked), FOLDED)
        if number >= max(device.visible(), first):
            raise AssertionError("Invalid device id")
        return describe(asked)

    return described


def _number_of(asked: Any) -> int:
    """The index of a device that was given as a `torch.device` or a string; -1 if it has none."""
    index = RealDevice(asked).index if isinstance(asked, (str, RealDevice)) else None
    return -1 if index is None else int(index)


def index_reader(device: Device) -> Callable[..., int]:
    """`_get_device_index` for the namespace's functions: any accelerator type means this device."""

    def _get_device_index(asked: Any, optional: bool = False, allow_cpu: bool = False) -> int:
        if isinstance(asked, str):
            asked = RealDevice(asked)
        if isinstance(asked, RealDevice):
            asked = asked.index
            optional = True
        if asked is None:
            if not optional:
                raise ValueError("Expected a torch.device with a specified index or an integer, but got:None")
            return device.current()
        if optional and isinstance(asked, Integral) and not isinstance(asked, int):
            return device.current()  # torch ignores NumPy integers here
        if isinstance(asked, bool) or not isinstance(asked, int):
            raise ValueError(f"Expected a torch.device with a specified index or an integer, but got:{asked}")
        return fold(asked, device.count, device.current())

    return _get_device_index


def device_functions(kind: str, device: Device) -> Table:
    """Replacements for the C functions on devices."""
    debug_mode = [0]
    properties: dict[int, Any] = {}

    def choose(index: int) -> None:
        device.begin()
        device.select(index)

    def exchange(index: int) -> int:
        former = device.current()
        if index >= 0:
            choose(index)
        return former

    # A separate function: torch's compiler has a rule for each of the two names, and looks rules up by object.
    def maybe_exchange(index: int) -> int:
        return exchange(index)

    def get_properties(index: int) -> Any:
        if index not in properties:
            properties[index] = PROPERTIES[kind](device, index)
        return properties[index]

    def set_sync_debug_mode(mode: int) -> None:
        debug_mode[0] = mode
        device.set_sync_debug_mode(mode)

    return {
        f"_{kind}_init": nothing,
        f"_{kind}_getDeviceCount": lambda: device.visible(),
        f"_{kind}_getDevice": lambda: device.current(),
        f"_{kind}_setDevice": choose,
        f"_{kind}_exchangeDevice": exchange,
        f"_{kind}_maybeExchangeDevice": maybe_exchange,
        f"_{kind}_isInBadFork": lambda: device.lost_by_fork(),
        f"_{kind}_hasPrimaryContext": constant(True),
        f"_{kind}_canDeviceAccessPeer": lambda index, peer: index != peer and device.count > 1,
        f"_{kind}_synchronize": lambda *_: device.synchronize(),
        # Kernels that keep a stream busy, for tests. The flag exists since torch 2.10.
        f"_{kind}_sleep": lambda cycles: device.keep_busy(cycles),
        **dict.fromkeys((f"_{kind}_busy_wait_for_flag", f"_{kind}_clear_flag"), nothing),
        f"_{kind}_ipc_collect": nothing,
        f"_{kind}_set_sync_debug_mode": set_sync_debug_mode,
        f"_{kind}_get_sync_debug_mode": lambda: debug_mode[0],
        f"_{kind}_getDeviceProperties": get_properties,
        f"_{kind}_getArchFlags": constant(ARCHITECTURES[kind]),
        f"_{kind}_getCompiledVersion": constant(12080),
    }


def device_names(kind: str, table: Table) -> Table:
    """Names in the namespace's modules that torch imports from torch._C when it is imported."""
    return {
        "_exchange_device": table[f"_{kind}_exchangeDevice"],
        "_maybe_exchange_device": table[f"_{kind}_maybeExchangeDevice"],
        "_get_device_properties": table[f"_{kind}_getDeviceProperties"],
        "_is_in_bad_fork": table[f"_{kind}_isInBadFork"],
    }


def initialised_names(device: Device) -> Table:
    """Names in the namespace's modules that torch sets on first use of the device."""
    return {
        "_get_device_index": index_reader(device),
        "_lazy_init": device.begin,
        "_initialized": True,
        "device_count": device.visible,
        "_is_in_bad_fork": lambda: device.lost_by_fork(),
        "_is_compiled": constant(True),
    }


def load_functions(device: Device) -> Table:
    """The namespace's functions that use NVML or similar libraries. psutil and the device itself supply the values."""
    read_index = index_reader(device)

    def utilization(device: Any = None) -> int:
        return round(system().cpu_percent(interval=None))

    def memory_usage(device: Any = None) -> int:
        free, total = free_and_total(device)
        return round(100 * (total - free) / total)

    def device_memory_used(device: Any = None) -> int:
        free, total = free_and_total(device)
        return total - free

    def free_and_total(asked: Any) -> tuple[int, int]:
        return answering.free_and_total(read_index(asked, optional=True))

    def temperature(device: Any = None) -> int:
        """Degrees Celsius of the hottest sensor; 0 if the system has none."""
        sensors = system().sensors_temperatures() if hasattr(system(), "sensors_temperatures") else {}
        return round(max((each.current for group in sensors.values() for each in group), default=0))

    def power_draw(device: Any = None) -> int:
        """Milliwatts; always 0, because no portable library reports power."""
        return 0

    def clock_rate(device: Any = None) -> int:
        """MHz."""
        return answering.describe(read_index(device, optional=True)).clock_khz // 1000

    def list_gpu_processes(device: Any = None) -> str:
        index = read_index(device, optional=True)
        held = answering.reserved(index) / (1 << 20)
        return f"GPU:{index}\nprocess {os.getpid():>10d} uses {held:>12.3f} MB GPU memory"

    answering = device
    named = (utilization, memory_usage, device_memory_used, temperature, power_draw, clock_rate, list_gpu_processes)
    return {function.__name__: function for function in named}
