"""What `nvidia-smi` would tell: load, temperature, power, clock, memory in use, and which processes compute."""

from __future__ import annotations

import os
from typing import Any

from torchdevice.cuda.device import Table, index_reader
from torchdevice.cuda.target import Target, system


def functions(target: Target) -> Table:
    """The namespace's functions over NVML and its kin, answered by psutil and by the target's own figures."""
    read_index = index_reader(target)

    def utilization(device: Any = None) -> int:
        return round(system().cpu_percent(interval=None))

    def memory_usage(device: Any = None) -> int:
        free, total = target.free_and_total(read_index(device, optional=True))
        return round(100 * (total - free) / total)

    def device_memory_used(device: Any = None) -> int:
        free, total = target.free_and_total(read_index(device, optional=True))
        return total - free

    def temperature(device: Any = None) -> int:
        """Degrees Celsius of the hottest sensor; 0 where the system shows none."""
        sensors = system().sensors_temperatures() if hasattr(system(), "sensors_temperatures") else {}
        return round(max((each.current for group in sensors.values() for each in group), default=0))

    def power_draw(device: Any = None) -> int:
        """Milliwatts; no portable source knows them."""
        return 0

    def clock_rate(device: Any = None) -> int:
        """MHz."""
        return target.describe(read_index(device, optional=True)).clock_khz // 1000

    def list_gpu_processes(device: Any = None) -> str:
        index = read_index(device, optional=True)
        held = target.reserved(index) / (1 << 20)
        return f"GPU:{index}\nprocess {os.getpid():>10d} uses {held:>12.3f} MB GPU memory"

    named = (utilization, memory_usage, device_memory_used, temperature, power_draw, clock_rate, list_gpu_processes)
    return {function.__name__: function for function in named}
