"""The rows: every public name of torch.cuda, torch.mps and torch.xpu, its kind of replacement, and its result.

A row describes what user code gets on a machine without the namespace's device. The replacements are in the other
modules of this package. `audience` decides which callers get the original instead. Tests compare the rows with the
installed torch. docs/masquerade.md is generated from them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from torchdevice import ledger


class Kind(Enum):
    """The kind of replacement of a name."""

    MAPPED = "mapped"  # calls the target's own function, or torch's own if that works here
    SIMULATED = "simulated"  # our own object or value, with the semantics that the name has on its own device
    NO_OP = "no-op"  # does nothing and returns what the device would return
    UNSUPPORTED = ledger.UNSUPPORTED  # raises CudaOnlyError


@dataclass(frozen=True)
class Row:
    """One name, relative to its namespace. `answer` is a key of ANSWERS.

    - `truth`: torch's own files, and packages that would enable code for that hardware only, get the original.
    - `left`: the name is not replaced, because torch's own object works with the other rows and the translation.
    - `constant`: torch's compiler may treat the result as a constant of the graph.
    - `loses`: a key of LOSSES, if the answer lacks something that the name has on its own device.
    """

    name: str
    kind: Kind
    answer: str
    truth: bool = False
    left: bool = False
    constant: bool = False
    loses: str = ""


@dataclass(frozen=True)
class Answer:
    """The result of a group of names, per type of target."""

    mps: str
    xpu: str
    cpu: str


def _same(text: str) -> Answer:
    return Answer(text, text, text)


ANSWERS = {
    "there": _same("`True` / the number of the target's devices"),
    "begun": _same("whether the program has used the device"),
    "one_kind": _same("not replaced: a library that looks for several types of devices must find only cuda"),
    "bf16": _same("`True`: the target computes bfloat16 (capability 8.0)"),
    "current": Answer("device 0", "torch.xpu's current device", "device 0"),
    "described": Answer(
        "Metal's name, recommended memory and core count; capability 8.0",
        "torch.xpu's name, memory and subslice count; capability 8.0",
        "the processor's name, the machine's memory and physical cores; capability 8.0",
    ),
    "start": _same("does nothing"),
    "synchronize": Answer("`torch.mps.synchronize()`", "`torch.xpu.synchronize()`", "does nothing: calls are blocking"),
    "stream": Answer(
        "simulated streams: work runs in the order of submission",
        "torch.xpu's streams",
        "simulated streams: work runs in the order of submission",
    ),
    "event": Answer("Metal events, GPU milliseconds", "torch.xpu's events", "the host's clock, milliseconds"),
    "allocated": Answer(
        "`current_allocated_memory`, `driver_allocated_memory`; the peak is sampled every 10 ms after its first use",
        "torch.xpu's own statistics",
        "bytes of the storages of live tensors; reserved and peaks from the process's resident memory",
    ),
    "reset": Answer("resets the sampled peak", "torch.xpu's own", "resets the high-water mark of the process (Linux)"),
    "free": Answer("recommended minus allocated memory", "`torch.xpu.mem_get_info`", "psutil: available, total"),
    "empty_cache": Answer("`torch.mps.empty_cache()`", "`torch.xpu.empty_cache()`", "does nothing: there is no cache"),
    "fraction": Answer(
        "`torch.mps.set_per_process_memory_fraction`", "torch.xpu's own", "tensors beyond it are refused"
    ),
    "raw_block": _same("the address of a byte tensor on the target"),
    "pool": _same("a pool object with an id; its memory comes from the target's allocator"),
    "history": _same("a snapshot without segments; with a virtual device, its segments"),
    "load": Answer(
        "the processor's load and memory (psutil)", "the processor's load and memory (psutil)", "psutil's figures"
    ),
    "processes": _same("this process and its memory"),
    "rng": Answer("the MPS generator", "torch.xpu's generators", "the CPU's default generator"),
    "graph": _same("capture runs and records the operators, `replay()` runs them again on the same tensors"),
    "hook": _same("torch's own: simulated graphs call it"),
    "annotation": _same("torch's own: `is_available()` is `False`, nothing is recorded"),
    "raw_graph": _same("raises `CudaOnlyError`: a simulated graph is a list of operators without a `cudaGraph_t`"),
    "peer": _same("`False` with one device"),
    "flags": _same("`sm_80`, which matches the capability"),
    "xpu_flags": _same("`pvc`, one architecture"),
    "handle": _same("0: cuBLAS and cuSOLVER are missing"),
    "cudart": _same("a simulated runtime module; its calls return success"),
    "nvtx": _same("ranges nest and return their depth; they are not recorded"),
    "nccl": _same("collectives over a list of tensors of this process; version 2.27.3"),
    "comm": _same("copies, splits and sums on the target"),
    "tunable": _same("settings are stored; nothing is tuned"),
    "amp": _same("torch's own, translated to the target's autocast and scaler with the requested dtype"),
    "legacy": _same("translation makes it on the target"),
    "error": _same("torch's own class"),
    "failure": Answer(
        "torch's own class, raised for MPS's RuntimeErrors; the original is the cause",
        "torch's own class, with CUDA's message; the original is the cause",
        "torch's own class, raised for the allocator's RuntimeError; the original is the cause",
    ),
    "constant": _same("torch's own value"),
    "settings": _same("the setting is only stored"),
    "kernel": _same("raises `CudaOnlyError`: CUDA source cannot run here"),
    "gds": _same("raises `CudaOnlyError`: GPUDirect Storage needs an NVIDIA driver"),
    "no_gds": _same("`False`"),
    "one_domain": _same("one locality domain"),
    "green": _same("raises `CudaOnlyError`: green contexts split an NVIDIA GPU"),
    "allocator": _same("raises `CudaOnlyError`: an allocator for CUDA memory cannot serve the target"),
    "metal": _same("raises `CudaOnlyError`: Metal source cannot run here"),
    "metal_trace": _same("does nothing; `False`"),
}

_QUEUE = "work runs in the order of submission and does not overlap"
# What a program does not get. A place that asks for it is logged as a warning.
LOSSES = {
    "overlap": Answer(mps=_QUEUE, xpu="", cpu=_QUEUE),
    "launch": _same("a replay runs the operators one by one and saves no launches"),
    "pool": _same("its memory comes from the target's allocator, like all other"),
    "segments": _same("the target does not list its memory, so a snapshot has no segments"),
}


def _rows(
    kind: Kind,
    answer: str,
    names: str,
    *,
    truth: bool = False,
    left: bool = False,
    constant: bool = False,
    loses: str = "",
) -> Iterator[Row]:
    for name in names.split():
        yield Row(name, kind, answer, truth, left, constant, loses)


M, S, N, U = Kind.MAPPED, Kind.SIMULATED, Kind.NO_OP, Kind.UNSUPPORTED

_LEGACY = " ".join(
    f"{dtype}{what}"
    for dtype in ("BFloat16", "Bool", "Byte", "Char", "Double", "Float", "Half", "Int", "Long", "Short")
    for what in ("Storage", "Tensor")
)
_SPARSE = " ".join(
    f"sparse.{dtype}Tensor" for dtype in ("BFloat16", "Byte", "Char", "Double", "Float", "Half", "Int", "Long", "Short")
)

CUDA = (
    *_rows(S, "there", "is_available device_count", truth=True, constant=True),
    *_rows(S, "begun", "is_initialized", truth=True, constant=True),
    *_rows(S, "bf16", "is_bf16_supported is_tf32_supported", truth=True, constant=True),
    *_rows(M, "current", "current_device", constant=True),
    *_rows(M, "current", "set_device device device_of"),
    *_rows(S, "described", "get_device_properties get_device_name get_device_capability", constant=True),
    *_rows(S, "flags", "get_arch_list get_gencode_flags", truth=True),
    *_rows(N, "start", "init ipc_collect"),
    *_rows(M, "synchronize", "synchronize"),
    *_rows(S, "peer", "can_device_access_peer"),
    *_rows(N, "handle", "current_blas_handle current_solver_handle"),
    *_rows(S, "settings", "get_sync_debug_mode set_sync_debug_mode"),
    *_rows(S, "stream", "Stream ExternalStream", loses="overlap"),
    *_rows(S, "stream", "StreamContext stream set_stream current_stream default_stream"),
    *_rows(S, "stream", "get_stream_from_external"),
    *_rows(M, "event", "Event"),
    *_rows(S, "allocated", "memory_allocated max_memory_allocated memory_reserved max_memory_reserved"),
    *_rows(S, "allocated", "memory_cached max_memory_cached memory_stats memory_stats_as_nested_dict memory_summary"),
    *_rows(S, "allocated", "host_memory_stats host_memory_stats_as_nested_dict"),
    *_rows(S, "reset", "reset_peak_memory_stats reset_accumulated_memory_stats"),
    *_rows(S, "reset", "reset_max_memory_allocated reset_max_memory_cached"),
    *_rows(N, "reset", "reset_accumulated_host_memory_stats reset_peak_host_memory_stats"),
    *_rows(S, "free", "mem_get_info device_memory_used"),
    *_rows(M, "empty_cache", "empty_cache"),
    *_rows(M, "fraction", "set_per_process_memory_fraction get_per_process_memory_fraction"),
    *_rows(S, "raw_block", "caching_allocator_alloc caching_allocator_delete"),
    *_rows(S, "settings", "caching_allocator_enable caching_allocator_disabled get_allocator_backend"),
    *_rows(S, "pool", "MemPool", loses="pool"),
    *_rows(S, "pool", "use_mem_pool"),
    *_rows(S, "history", "memory_snapshot", loses="segments"),
    *_rows(S, "load", "memory_usage utilization temperature power_draw clock_rate"),
    *_rows(S, "processes", "list_gpu_processes"),
    *_rows(U, "allocator", "CUDAPluggableAllocator change_current_allocator"),
    *_rows(M, "rng", "manual_seed manual_seed_all seed seed_all", truth=True),
    *_rows(M, "rng", "get_rng_state get_rng_state_all set_rng_state set_rng_state_all initial_seed default_generators"),
    *_rows(S, "graph", "CUDAGraph", loses="launch"),
    *_rows(S, "graph", "graph make_graphed_callables graph_pool_handle"),
    *_rows(S, "graph", "is_current_stream_capturing", truth=True),
    *_rows(M, "hook", "graphs.register_graph_capture_start_hook graphs.register_graph_capture_end_hook", left=True),
    *_rows(M, "hook", "graphs.register_graph_replay_start_hook graphs.register_graph_replay_end_hook", left=True),
    *_rows(M, "hook", "graphs.register_graph_instantiate_hook graphs.register_graph_destroy_hook", left=True),
    *_rows(M, "annotation", "graph_annotations.is_available graph_annotations.mark_kernels", left=True),
    *_rows(M, "annotation", "graph_annotations.get_kernel_annotations", left=True),
    *_rows(M, "annotation", "graph_annotations.clear_kernel_annotations", left=True),
    *_rows(M, "annotation", "graph_annotations.get_kernel_py_stacks", left=True),
    *_rows(M, "annotation", "graph_annotations.dump_kernel_py_stacks", left=True),
    *_rows(U, "raw_graph", "export_dot export_graph_data"),
    *_rows(S, "cudart", "cudart check_error profiler.init profiler.start profiler.stop profiler.profile"),
    *_rows(S, "nvtx", "nvtx.range nvtx.range_push nvtx.range_pop nvtx.range_start nvtx.range_end nvtx.mark"),
    *_rows(S, "nccl", "nccl.all_reduce nccl.reduce nccl.broadcast nccl.all_gather nccl.reduce_scatter"),
    *_rows(S, "nccl", "nccl.is_available nccl.version nccl.unique_id nccl.init_rank", truth=True),
    *_rows(S, "comm", "comm.broadcast comm.broadcast_coalesced comm.scatter comm.gather"),
    *_rows(S, "comm", "comm.reduce_add comm.reduce_add_coalesced"),
    *_rows(S, "tunable", "tunable.enable tunable.is_enabled tunable.tuning_enable tunable.tuning_is_enabled"),
    *_rows(S, "tunable", "tunable.record_untuned_enable tunable.record_untuned_is_enabled"),
    *_rows(S, "tunable", "tunable.set_filename tunable.get_filename tunable.get_results tunable.get_validators"),
    *_rows(S, "tunable", "tunable.set_max_tuning_duration tunable.get_max_tuning_duration tunable.read_file"),
    *_rows(S, "tunable", "tunable.set_max_tuning_iterations tunable.get_max_tuning_iterations tunable.write_file"),
    *_rows(S, "tunable", "tunable.set_rotating_buffer_size tunable.get_rotating_buffer_size"),
    *_rows(S, "tunable", "tunable.set_numerical_check_tolerances tunable.write_file_on_exit"),
    *_rows(S, "tunable", "tunable.wildcard_fallback_enable tunable.wildcard_fallback_is_enabled"),
    *_rows(S, "tunable", "tunable.set_cublaslt_requested_algo_count tunable.get_cublaslt_requested_algo_count"),
    *_rows(S, "tunable", "tunable.dynamic_dims_mask"),
    *_rows(U, "kernel", "tunable.tune_gemm_in_file tunable.mgpu_tune_gemm_in_file"),
    # torch's own operator database makes such functions at import, and does not call them without CUDA.
    *_rows(U, "kernel", "jiterator._create_jit_fn jiterator._create_multi_output_jit_fn", truth=True),
    *_rows(U, "kernel", "_compile_kernel"),
    *_rows(U, "gds", "gds.GdsFile gds.gds_register_buffer gds.gds_deregister_buffer"),
    *_rows(S, "no_gds", "gds.is_available"),
    *_rows(U, "green", "GreenContext green_contexts.SMPartition"),
    *_rows(S, "one_domain", "green_contexts.get_num_locality_domains green_contexts.is_localization_supported"),
    *_rows(M, "amp", "amp.autocast amp.GradScaler amp.custom_fwd amp.custom_bwd", left=True),
    *_rows(S, "there", "amp.amp_definitely_not_available", truth=True),
    *_rows(M, "legacy", _LEGACY, left=True),
    *_rows(M, "legacy", f"ComplexDoubleStorage ComplexFloatStorage {_SPARSE}", left=True),
    *_rows(M, "error", "CudaError DeferredCudaCallError cudaStatus", left=True),
    *_rows(M, "failure", "OutOfMemoryError AcceleratorError", left=True),
    *_rows(M, "constant", "has_half has_magma DEVICE_REQUIREMENT PYTORCH_RELEASES_CODE_CC", left=True),
    *_rows(M, "constant", "DEVICE_REQUIREMENT_POST_JETSON_SBSA_UNIFICATION", left=True),
    *_rows(M, "constant", "profiler.DEFAULT_FLAGS nccl.SUM green_contexts.SUPPORTED", left=True),
    # Private names that known user code calls.
    *_rows(N, "start", "_lazy_init", truth=True),
    *_rows(N, "start", "_sleep"),
    *_rows(S, "there", "_is_compiled", truth=True),
    *_rows(S, "cudart", "_cudart"),
    *_rows(S, "history", "memory._snapshot memory._dump_snapshot", loses="segments"),
    *_rows(S, "history", "memory._record_memory_history"),
    *_rows(M, "current", "_exchange_device _maybe_exchange_device _DeviceGuard"),
)

XPU = (
    *_rows(M, "one_kind", "is_available device_count", left=True),
    *_rows(S, "begun", "is_initialized", truth=True, constant=True),
    *_rows(S, "bf16", "is_bf16_supported is_tf32_supported", truth=True, constant=True),
    *_rows(M, "current", "current_device", constant=True),
    *_rows(M, "current", "set_device device device_of"),
    *_rows(S, "described", "get_device_properties get_device_name get_device_capability", constant=True),
    *_rows(S, "xpu_flags", "get_arch_list get_gencode_flags", truth=True),
    *_rows(N, "start", "init"),
    *_rows(N, "start", "_lazy_init", truth=True),
    *_rows(M, "synchronize", "synchronize"),
    *_rows(S, "peer", "can_device_access_peer"),
    *_rows(S, "stream", "Stream", loses="overlap"),
    *_rows(S, "stream", "StreamContext stream set_stream current_stream get_stream_from_external"),
    *_rows(M, "event", "Event"),
    *_rows(S, "allocated", "memory_allocated max_memory_allocated memory_reserved max_memory_reserved"),
    *_rows(S, "allocated", "memory_stats memory_stats_as_nested_dict"),
    *_rows(S, "reset", "reset_peak_memory_stats reset_accumulated_memory_stats"),
    *_rows(S, "free", "mem_get_info device_memory_used"),
    *_rows(M, "empty_cache", "empty_cache"),
    *_rows(M, "fraction", "set_per_process_memory_fraction get_per_process_memory_fraction"),
    *_rows(S, "pool", "MemPool", loses="pool"),
    *_rows(S, "pool", "use_mem_pool"),
    *_rows(S, "history", "memory_snapshot", loses="segments"),
    *_rows(S, "load", "memory_usage utilization temperature power_draw clock_rate"),
    *_rows(S, "processes", "list_gpu_processes"),
    *_rows(U, "allocator", "XPUPluggableAllocator change_current_allocator"),
    *_rows(M, "rng", "manual_seed manual_seed_all seed seed_all", truth=True),
    *_rows(M, "rng", "get_rng_state get_rng_state_all set_rng_state set_rng_state_all initial_seed default_generators"),
    *_rows(S, "graph", "XPUGraph", loses="launch"),
    *_rows(S, "graph", "graph make_graphed_callables graph_pool_handle"),
    *_rows(S, "graph", "is_current_stream_capturing", truth=True),
)

MPS = (
    *_rows(M, "one_kind", "is_available device_count", left=True),
    *_rows(M, "synchronize", "synchronize"),
    *_rows(S, "allocated", "current_allocated_memory driver_allocated_memory recommended_max_memory"),
    *_rows(M, "empty_cache", "empty_cache"),
    *_rows(M, "fraction", "set_per_process_memory_fraction"),
    *_rows(M, "rng", "manual_seed seed", truth=True),
    *_rows(M, "rng", "get_rng_state set_rng_state"),
    *_rows(M, "event", "Event"),
    *_rows(S, "stream", "Stream", loses="overlap"),
    *_rows(S, "stream", "stream set_stream current_stream default_stream"),
    *_rows(N, "metal_trace", "profiler.start profiler.stop profiler.profile profiler.is_capturing_metal"),
    *_rows(N, "metal_trace", "profiler.is_metal_capture_enabled"),
    *_rows(U, "metal", "compile_shader load_metallib profiler.metal_capture"),
    *_rows(M, "constant", "profiler.ProfilerMode", left=True),
)

SURFACE = {"cuda": CUDA, "mps": MPS, "xpu": XPU}
SUBMODULES = {
    "cuda": [
        *("memory", "random", "streams", "graphs", "nvtx", "profiler", "nccl", "comm", "tunable", "jiterator", "gds"),
        *("green_contexts", "graph_annotations", "amp", "sparse"),
    ],
    "mps": ["event", "profiler", "streams"],
    "xpu": ["memory", "random", "streams", "graphs"],
}

# Packages that get the originals. If CUDA seemed available, they would load kernels that cannot run.
TRUTH_PACKAGES = (
    *("apex", "bitsandbytes", "causal_conv1d", "deepspeed", "flash_attn", "flashinfer", "mamba_ssm", "pynvml"),
    *("tensorrt", "transformer_engine", "triton", "vllm", "xformers"),
)
