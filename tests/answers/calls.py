"""Every name of the table with sensible arguments, and the shape of its answer: what is compared between devices.

A name that needs no argument is not listed: `answers` calls every row of a namespace all the same.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.cuda.comm

from torchdevice.answers.rows import SURFACE, Row


def shape(value: Any) -> Any:
    """What two devices' answers must have in common: types, keys, lengths, public attributes."""
    if isinstance(value, torch.Tensor):
        return ("tensor", str(value.dtype))
    if isinstance(value, Mapping):
        return {str(key): shape(value[key]) for key in value}
    if type(value) in (list, tuple):
        return [type(value).__name__, *(shape(each) for each in value)]
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return type(value).__name__
    return type(value).__name__, sorted(name for name in dir(value) if not name.startswith("_"))


def _ones(count: int = 2, kind: str = "cuda", size: int = 2) -> list[torch.Tensor]:
    return [torch.ones(size, 2, device=kind) for _ in range(count)]


def _file(name: str) -> str:
    return os.path.join(tempfile.mkdtemp(), name)


def _pushed() -> tuple[()]:
    torch.cuda.nvtx.range_push("a")
    return ()


def _cuda(kind: str) -> Any:
    return getattr(torch, kind)


GRAPH_HOOKS = "capture_start capture_end replay_start replay_end instantiate destroy"

Arguments = Callable[[str], tuple[Any, ...]]


def _given(*values: Any) -> Arguments:
    return lambda kind: values


# Name → its arguments, made when it is called. The names are those of torch.cuda; torch.xpu and torch.mps share them.
ARGUMENTS: dict[str, Arguments] = {
    **dict.fromkeys(("set_device", "device", "_exchange_device", "_maybe_exchange_device", "_DeviceGuard"), _given(0)),
    **dict.fromkeys(("memory_cached", "max_memory_cached", "manual_seed", "manual_seed_all", "_sleep"), _given(0)),
    **dict.fromkeys(("device_of", "comm.reduce_add"), lambda kind: (_ones(1, kind)[0],)),
    **dict.fromkeys(("ExternalStream", "get_stream_from_external"), _given(0x10)),
    **dict.fromkeys(("nccl.all_reduce", "nccl.reduce", "nccl.broadcast", "comm.reduce_add"), lambda kind: (_ones(),)),
    **dict.fromkeys(("nvtx.range", "nvtx.range_push", "nvtx.range_start", "nvtx.mark"), _given("a")),
    **dict.fromkeys(("tunable.enable", "tunable.tuning_enable", "tunable.record_untuned_enable"), _given(True)),
    **dict.fromkeys(("tunable.wildcard_fallback_enable",), _given(True)),
    "tunable.set_cublaslt_requested_algo_count": _given(2),
    **dict.fromkeys(("tunable.write_file_on_exit",), _given(False)),
    **dict.fromkeys(("tunable.set_max_tuning_duration", "tunable.set_max_tuning_iterations"), _given(7)),
    **dict.fromkeys(("DeferredCudaCallError", "OutOfMemoryError", "AcceleratorError"), _given("text")),
    **dict.fromkeys(("amp.custom_fwd", "amp.custom_bwd"), _given(lambda: None)),
    **dict.fromkeys(("CUDAPluggableAllocator", "XPUPluggableAllocator"), _given("library.so", "alloc", "free")),
    **dict.fromkeys(("gds.gds_register_buffer", "gds.gds_deregister_buffer"), lambda kind: (_ones()[0],)),
    "can_device_access_peer": _given(0, 0),
    "set_sync_debug_mode": _given("default"),
    "stream": lambda kind: (_cuda(kind).Stream(),),
    "StreamContext": lambda kind: (_cuda(kind).Stream(),),
    "set_stream": lambda kind: (_cuda(kind).current_stream(),),
    "set_per_process_memory_fraction": _given(1.0),
    "caching_allocator_alloc": _given(1024),
    "caching_allocator_delete": lambda kind: (torch.cuda.caching_allocator_alloc(1024),),
    "caching_allocator_enable": _given(True),
    "use_mem_pool": lambda kind: (_cuda(kind).MemPool(),),
    "change_current_allocator": _given(None),
    "set_rng_state": lambda kind: (_cuda(kind).get_rng_state(),),
    "set_rng_state_all": lambda kind: (_cuda(kind).get_rng_state_all(),),
    "graph": lambda kind: (_cuda(kind).CUDAGraph() if kind == "cuda" else _cuda(kind).XPUGraph(),),
    "make_graphed_callables": lambda kind: (torch.nn.Linear(2, 2).to(kind), tuple(_ones(1, kind))),
    **dict.fromkeys(
        (f"graphs.register_graph_{when}_hook" for when in GRAPH_HOOKS.split()), lambda kind: (lambda *given: None,)
    ),
    **dict.fromkeys(("export_dot", "export_graph_data"), lambda kind: (_file("graph"),)),
    "graph_annotations.mark_kernels": _given("phase"),
    "graph_annotations.dump_kernel_py_stacks": lambda kind: (_file("stacks.json"),),
    "green_contexts.SMPartition": _given(None, 0),
    "check_error": _given(0),
    "profiler.init": lambda kind: (_file("profile.txt"),),
    "nvtx.range_pop": lambda kind: _pushed(),
    "nvtx.range_end": lambda kind: (torch.cuda.nvtx.range_start("a"),),
    "nccl.is_available": lambda kind: (_ones(),),
    "nccl.all_gather": lambda kind: (_ones(), _ones(2, size=4)),
    "nccl.reduce_scatter": lambda kind: (_ones(2, size=4), _ones()),
    "nccl.init_rank": lambda kind: (1, torch.cuda.nccl.unique_id(), 0),
    "comm.broadcast": lambda kind: (_ones(1)[0], [0]),
    "comm.broadcast_coalesced": lambda kind: (_ones(), [0]),
    "comm.scatter": lambda kind: (_ones(1)[0], [0]),
    "comm.gather": lambda kind: (_ones(), 0, 0),
    "comm.reduce_add_coalesced": lambda kind: ([_ones(), _ones()],),
    "tunable.set_filename": lambda kind: (_file("tunable0.csv"),),
    "tunable.read_file": lambda kind: (_file("absent.csv"),),
    "tunable.write_file": lambda kind: (_file("results.csv"),),
    "tunable.set_rotating_buffer_size": _given(1),
    "tunable.set_numerical_check_tolerances": _given(True),
    "tunable.tune_gemm_in_file": lambda kind: (_file("untuned.csv"),),
    "tunable.mgpu_tune_gemm_in_file": lambda kind: (_file("untuned*.csv"), 1),
    "jiterator._create_jit_fn": _given("template <typename T> T f(T x) { return x; }"),
    "jiterator._create_multi_output_jit_fn": _given("template <typename T> void f(T x, T& y) { y = x; }", 1),
    "_compile_kernel": _given('extern "C" __global__ void f() {}', "f"),
    "gds.GdsFile": lambda kind: (_file("data"), os.O_CREAT | os.O_RDWR),
    "memory._record_memory_history": _given(None),
    "memory._dump_snapshot": lambda kind: (_file("snapshot.pickle"),),
    "CudaError": _given(2),
    "compile_shader": _given("kernel void f() {}"),
    "load_metallib": lambda kind: (_file("absent.metallib"),),
    "profiler.metal_capture": lambda kind: (_file("capture.gputrace"),),
}


def call(kind: str, row: Row) -> Any:
    """The answer of one name: what a function returns, what a context gives, what a value is."""
    value: Any = getattr(torch, kind)
    for part in row.name.split("."):
        value = getattr(value, part)
    if not callable(value) or row.answer == "constant":
        return value
    made = value(*ARGUMENTS.get(row.name, _given())(kind))
    if hasattr(made, "__enter__"):
        with made as inner:
            return made, inner
    return made


def rows(kind: str) -> list[Row]:
    """The rows of a namespace that the installed torch has (`status().skipped` names the others)."""
    found = []
    for row in SURFACE[kind]:
        value: Any = getattr(torch, kind)
        with contextlib.suppress(AttributeError):
            for part in row.name.split("."):
                value = getattr(value, part)
            found.append(row)
    return found


def answers(kind: str) -> dict[str, Any]:
    """The shape of the answer of every row of a namespace, or the error."""
    found: dict[str, Any] = {}
    warnings.simplefilter("ignore")
    for row in rows(kind):
        try:
            found[row.name] = shape(call(kind, row))
        except Exception as error:  # the comparison shows it
            found[row.name] = f"{type(error).__name__}: {error}"
    return found


# --- more than one call ------------------------------------------------------------------------------------------


def _timed() -> Any:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end)


def _graphed() -> Any:
    graph, x = torch.cuda.CUDAGraph(), torch.zeros(3, device="cuda")
    with torch.cuda.graph(graph):
        y = x * 2 + 1
    x.fill_(5)
    graph.replay()
    return y.tolist()


SCENARIOS: dict[str, Callable[[], Any]] = {
    "elapsed_time": _timed,
    "replay": _graphed,
    "cudaProfilerStart": lambda: torch.cuda.check_error(torch.cuda.cudart().cudaProfilerStart()),
    "memory._snapshot": lambda: torch.cuda.memory._snapshot(),
    "version": lambda: torch.version.cuda,
    "autocast": lambda: (torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")),
}


def scenarios() -> dict[str, Any]:
    """The shapes of what several calls together answer."""
    return {name: shape(run()) for name, run in SCENARIOS.items()}
