"""Each name of torch.cuda with sensible arguments, and the shape of an answer: what is compared between devices."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.cuda.comm


def shape(value: Any) -> Any:
    """What two devices' answers must have in common: types, keys, lengths, public attributes."""
    if isinstance(value, torch.Tensor):
        return ("tensor", str(value.dtype))
    if isinstance(value, Mapping):
        return {key: shape(value[key]) for key in value}
    if type(value) in (list, tuple):
        return [type(value).__name__, *(shape(each) for each in value)]
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return type(value).__name__
    return type(value).__name__, sorted(name for name in dir(value) if not name.startswith("_"))


def _timed() -> Any:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end)


def _block() -> Any:
    pointer = torch.cuda.caching_allocator_alloc(1024)
    return pointer, torch.cuda.caching_allocator_delete(pointer)


def _graphed() -> Any:
    graph, x = torch.cuda.CUDAGraph(), torch.zeros(3, device="cuda")
    with torch.cuda.graph(graph):
        y = x * 2 + 1
    x.fill_(5)
    graph.replay()
    return y.tolist()


def _entered(context: Any) -> Any:
    with context as inner:
        return inner


def _reseeded() -> Any:
    torch.cuda.set_rng_state_all(torch.cuda.get_rng_state_all())
    return torch.cuda.set_rng_state(torch.cuda.get_rng_state())


def _tunable() -> Any:
    torch.cuda.tunable.set_max_tuning_iterations(7)
    return torch.cuda.tunable.get_max_tuning_iterations()


def _ones(count: int = 2) -> list[torch.Tensor]:
    return [torch.ones(2, 2, device="cuda") for _ in range(count)]


PLAIN = """
    is_available device_count is_initialized is_bf16_supported is_tf32_supported current_device get_device_properties
    get_device_name get_device_capability init ipc_collect synchronize get_sync_debug_mode current_stream default_stream
    memory_allocated max_memory_allocated memory_reserved max_memory_reserved memory_stats memory_stats_as_nested_dict
    memory_summary reset_peak_memory_stats reset_accumulated_memory_stats mem_get_info empty_cache memory_snapshot
    get_per_process_memory_fraction get_allocator_backend initial_seed seed seed_all get_rng_state get_rng_state_all
    graph_pool_handle is_current_stream_capturing current_blas_handle get_arch_list get_gencode_flags Stream Event
    CUDAGraph MemPool host_memory_stats reset_peak_host_memory_stats reset_accumulated_host_memory_stats
"""
SENSORS = "memory_usage utilization temperature power_draw clock_rate list_gpu_processes device_memory_used"


def _plain(names: str) -> dict[str, Callable[[], Any]]:
    """Functions and classes that need no argument."""
    return {name: (lambda name=name: getattr(torch.cuda, name)()) for name in names.split()}


CALLS: dict[str, Callable[[], Any]] = {
    **_plain(PLAIN),
    "set_device": lambda: torch.cuda.set_device(0),
    "device": lambda: _entered(torch.cuda.device(0)),
    "device_of": lambda: _entered(torch.cuda.device_of(torch.ones(1, device="cuda"))),
    "can_device_access_peer": lambda: isinstance(torch.cuda.can_device_access_peer(0, 0), bool),
    "set_sync_debug_mode": lambda: torch.cuda.set_sync_debug_mode("default"),
    "stream": lambda: _entered(torch.cuda.stream(torch.cuda.Stream())),
    "StreamContext": lambda: _entered(torch.cuda.StreamContext(torch.cuda.Stream())),
    "set_stream": lambda: torch.cuda.set_stream(torch.cuda.current_stream()),
    "ExternalStream": lambda: torch.cuda.ExternalStream(0x10),
    "get_stream_from_external": lambda: torch.cuda.get_stream_from_external(0x10),
    "elapsed_time": _timed,
    "memory_cached": lambda: torch.cuda.memory_reserved(0),
    "set_per_process_memory_fraction": lambda: torch.cuda.set_per_process_memory_fraction(1.0),
    "caching_allocator_alloc": _block,
    "caching_allocator_enable": lambda: torch.cuda.caching_allocator_enable(True),
    "caching_allocator_disabled": lambda: _entered(torch.cuda.memory.caching_allocator_disabled()),
    "use_mem_pool": lambda: _entered(torch.cuda.use_mem_pool(torch.cuda.MemPool())),
    "manual_seed": lambda: torch.cuda.manual_seed(1),
    "manual_seed_all": lambda: torch.cuda.manual_seed_all(1),
    "set_rng_state": _reseeded,
    "default_generators": lambda: torch.cuda.default_generators,
    "graph": _graphed,
    "cudart": lambda: torch.cuda.check_error(torch.cuda.cudart().cudaProfilerStart()),
    "profiler": lambda: (torch.cuda.profiler.start(), torch.cuda.profiler.stop()),
    "nvtx": lambda: (torch.cuda.nvtx.range_push("a"), torch.cuda.nvtx.mark("b"), torch.cuda.nvtx.range_pop()),
    "nvtx.range": lambda: _entered(torch.cuda.nvtx.range("a {}", 1)),
    "nvtx.range_start": lambda: torch.cuda.nvtx.range_end(torch.cuda.nvtx.range_start("a")),
    "nccl.all_reduce": lambda: torch.cuda.nccl.all_reduce(_ones()),
    "nccl.reduce": lambda: torch.cuda.nccl.reduce(_ones()),
    "nccl.broadcast": lambda: torch.cuda.nccl.broadcast(_ones()),
    "comm.broadcast": lambda: torch.cuda.comm.broadcast(_ones()[0], [0]),
    "comm.scatter": lambda: torch.cuda.comm.scatter(_ones()[0], [0]),
    "comm.gather": lambda: torch.cuda.comm.gather(_ones(), destination=0),
    "comm.reduce_add": lambda: torch.cuda.comm.reduce_add(_ones()),
    "snapshot": lambda: torch.cuda.memory._snapshot(),
    "manual_history": lambda: torch.cuda.memory._record_memory_history(enabled=None),
    "version": lambda: torch.version.cuda,
    "cudnn": lambda: torch.backends.cudnn.version(),
    "autocast": lambda: (torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")),
}

# Virtual cuda has no NVML and no cuBLAS tuner either: these have nothing to be compared with.
ALONE: dict[str, Callable[[], Any]] = {
    **_plain(SENSORS),
    "tunable": _tunable,
    "nccl.version": lambda: torch.cuda.nccl.version(),
}


def answers(calls: Mapping[str, Callable[[], Any]]) -> dict[str, Any]:
    """The shape of every answer, or the error."""
    found: dict[str, Any] = {}
    for name, call in calls.items():
        try:
            with contextlib.suppress(Warning):
                found[name] = shape(call())
        except Exception as error:  # the comparison shows it
            found[name] = f"{type(error).__name__}: {error}"
    return found
