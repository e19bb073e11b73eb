"""What is known of each gap beyond the measurement: its class, what TorchDevice does instead, and what to do about it.

One row per name, written by hand. `gaps` finds the gaps; a gap without a row here is open, and a test fails.
"""

from __future__ import annotations

from dataclasses import dataclass

SIGNATURE = "signature mismatch"
UNPATCHED = "unpatched API that takes a device"
DIVERGENCE = "behavioural divergence"
LIMIT = "limitation of the target"
REFINE = "to refine"
CLASSES = (SIGNATURE, UNPATCHED, DIVERGENCE, LIMIT, REFINE)

HIGH, MEDIUM, LOW = "high", "medium", "low"
OPEN, ACCEPTED, DESIGN = "open", "accepted", "by design"


@dataclass(frozen=True)
class Known:
    """What is known of one gap. `description` is the measured difference where none is written."""

    kind: str
    instead: str
    action: str
    severity: str = LOW
    status: str = DESIGN
    description: str = ""


_ONLY = "raises `CudaOnlyError`"
_NO_KERNEL = "no change: torch raises `NotImplementedError`"
_ON_CPU = "keeps the tensor on the CPU"
_LOUD = "no change: torch raises an error"
_NESTED_ON_CPU = "keeps a nested tensor that is made of MPS tensors on the CPU"

_ALLOCATOR = "an allocator for CUDA memory cannot serve the target"
_GREEN = "green contexts split the multiprocessors of an NVIDIA GPU"
_GDS = "GPUDirect Storage needs an NVIDIA driver"
_TUNING = "tuning measures matrix products of CUDA's libraries"
_METAL = "Metal source runs only on Apple's GPUs"
_CUDNN = "cuDNN's kernel under a public name; the layers of torch.nn do not call it by this name"
_SYNC = "a kernel of SyncBatchNorm that torch has for CUDA; `SyncBatchNorm` itself works on every target"
_NESTED = "nested tensors of the strided layout exist only on the CPU, CUDA and XPU; the jagged layout works on MPS"
_QUANTIZED = "MPS has no quantized tensors"

KNOWN: dict[str, Known] = {
    # Features of NVIDIA GPUs.
    "torch.cuda.CUDAPluggableAllocator": Known(
        LIMIT,
        _ONLY,
        "load the library and call its functions for host memory, if a program uses it only for logging",
        description=_ALLOCATOR,
    ),
    "torch.cuda.CUDAPluggableAllocator.allocator": Known(
        LIMIT, _ONLY, "return the handle when the constructor accepts a library", description=_ALLOCATOR
    ),
    "torch.cuda.change_current_allocator": Known(
        LIMIT,
        _ONLY,
        "add a setting that replaces the error by a warning, for programs that change allocators only for speed",
        description=_ALLOCATOR,
    ),
    "torch.cuda.GreenContext": Known(LIMIT, _ONLY, "none: no other device is split in this way", description=_GREEN),
    "torch.cuda.GreenContext.Stream": Known(
        LIMIT, _ONLY, "return an ordinary stream of the target if `create` is simulated", description=_GREEN
    ),
    "torch.cuda.GreenContext.create": Known(
        LIMIT,
        _ONLY,
        "simulate a context that is the whole device, if a library always requests one",
        description=_GREEN,
    ),
    "torch.cuda.GreenContext.max_workqueue_concurrency": Known(
        LIMIT, _ONLY, "return 1 with a simulated `create`", description=_GREEN
    ),
    "torch.cuda.GreenContext.pop_context": Known(
        LIMIT, _ONLY, "undo `set_context` when that function has an effect", description=_GREEN
    ),
    "torch.cuda.GreenContext.set_context": Known(
        LIMIT, _ONLY, "count it as a no-op with a simulated `create`", description=_GREEN
    ),
    "torch.cuda.gds.GdsFile": Known(
        LIMIT, _ONLY, "open an ordinary file, which has the same bytes but not the speed of GPUDirect", description=_GDS
    ),
    "torch.cuda.gds.GdsFile.deregister_handle": Known(
        LIMIT, _ONLY, "do nothing when `GdsFile` is an ordinary file", description=_GDS
    ),
    "torch.cuda.gds.GdsFile.load_storage": Known(
        LIMIT, _ONLY, "read into host memory and copy from there to the target", description=_GDS
    ),
    "torch.cuda.gds.GdsFile.register_handle": Known(
        LIMIT, _ONLY, "keep the file descriptor, which is sufficient for an ordinary file", description=_GDS
    ),
    "torch.cuda.gds.GdsFile.save_storage": Known(
        LIMIT, _ONLY, "copy to host memory and write from there", description=_GDS
    ),
    "torch.cuda.gds.gds_deregister_buffer": Known(
        LIMIT, _ONLY, "unpin the storage that `gds_register_buffer` would pin", description=_GDS
    ),
    "torch.cuda.gds.gds_register_buffer": Known(
        LIMIT, _ONLY, "pin the storage where the target has pinned memory, else do nothing", description=_GDS
    ),
    "torch.cuda.tunable.mgpu_tune_gemm_in_file": Known(
        LIMIT, _ONLY, "none: there is at most one device, so there is no work to distribute", description=_TUNING
    ),
    "torch.cuda.tunable.tune_gemm_in_file": Known(
        LIMIT,
        _ONLY,
        "read the file and report its shapes, to show the user that it had no effect",
        description=_TUNING,
    ),
    "torch.mps.compile_shader": Known(
        LIMIT,
        "raises `CudaOnlyError` on other targets than MPS",
        "name torch.compile in the hint, which can compile a kernel in Python",
        description=_METAL,
    ),
    "torch.mps.load_metallib": Known(
        LIMIT,
        "raises `CudaOnlyError` on other targets than MPS",
        "none: a compiled library contains machine code for Apple's GPUs",
        description=_METAL,
    ),
    "torch.mps.profiler.metal_capture": Known(
        LIMIT,
        "raises `CudaOnlyError` on other targets than MPS",
        "point to torch.profiler in the hint",
        description=_METAL,
    ),
    "torch.utils.cpp_extension.CUDAExtension": Known(
        LIMIT,
        "raises `CudaOnlyError` for CUDA sources",
        "build only the C++ sources if a `setup.py` guards its kernels by a macro",
        description="CUDA sources need nvcc and an NVIDIA GPU",
    ),
    "torch.utils.cpp_extension.load": Known(
        LIMIT,
        "raises `CudaOnlyError` for CUDA sources; C++ is built and loaded",
        "list the `.cu` files in the error, with the stand-ins that replace them",
        description="CUDA sources need nvcc and an NVIDIA GPU",
    ),
    "torch.utils.cpp_extension.load_inline": Known(
        LIMIT,
        "raises `CudaOnlyError` for `cuda_sources`; C++ is built and loaded",
        "show the first line of the kernel in the error, because inline sources have no file name",
        description="CUDA sources need nvcc and an NVIDIA GPU",
    ),
    "torch.xpu.XPUPluggableAllocator": Known(
        LIMIT,
        _ONLY,
        "follow `CUDAPluggableAllocator`",
        description="an allocator for XPU memory cannot serve the target",
    ),
    "torch.xpu.XPUPluggableAllocator.allocator": Known(
        LIMIT,
        _ONLY,
        "follow `CUDAPluggableAllocator.allocator`",
        description="an allocator for XPU memory cannot serve the target",
    ),
    "torch.xpu.change_current_allocator": Known(
        LIMIT,
        _ONLY,
        "follow `torch.cuda.change_current_allocator`",
        description="an allocator for XPU memory cannot serve the target",
    ),
    # Limits of MPS.
    "torch.nested.nested_tensor": Known(
        LIMIT,
        _LOUD,
        "move the list to the CPU first if MPS is requested, as for tensors that are on MPS",
        MEDIUM,
        ACCEPTED,
        _NESTED,
    ),
    "torch.nested.as_nested_tensor": Known(
        LIMIT,
        _NESTED_ON_CPU,
        "recommend the jagged layout, which MPS supports, in the hint of the report",
        MEDIUM,
        ACCEPTED,
        _NESTED,
    ),
    "torch.nested.to_padded_tensor": Known(
        LIMIT,
        "pads on the CPU, and the result stays there",
        "move the result to MPS if the nested tensor was requested there",
        MEDIUM,
        ACCEPTED,
        _NESTED,
    ),
    "torch.Tensor.to_padded_tensor": Known(
        LIMIT,
        "pads on the CPU, as the function does",
        "follow `torch.nested.to_padded_tensor`, which is the same operator",
        MEDIUM,
        ACCEPTED,
        _NESTED,
    ),
    "torch.quantize_per_tensor": Known(
        LIMIT,
        _ON_CPU,
        "store it in a tensor subclass that reports `mps`, as for compressed sparse tensors",
        MEDIUM,
        ACCEPTED,
        _QUANTIZED,
    ),
    "torch.quantize_per_channel": Known(
        LIMIT, _ON_CPU, "extend that class to a scale per channel", MEDIUM, ACCEPTED, _QUANTIZED
    ),
    "torch.quantize_per_tensor_dynamic": Known(
        LIMIT, _ON_CPU, "compute the scale on MPS and quantize as above", MEDIUM, ACCEPTED, _QUANTIZED
    ),
    "torch.UntypedStorage.resize_": Known(
        LIMIT, _LOUD, "request it from PyTorch: FSDP frees its shards in this way", MEDIUM, ACCEPTED
    ),
    "torch.distributed.fsdp.fully_shard": Known(
        LIMIT,
        _LOUD,
        "accept a stream in the events of torch.mps, then free shards without resizing their storage",
        MEDIUM,
        ACCEPTED,
        "FSDP needs events of the accelerator that wait on streams, and resizes storages; torch.mps supports neither",
    ),
    "torch.nn.functional.scaled_mm": Known(
        LIMIT,
        "narrows float8 to float16, which this function refuses",
        "compute the product of the float16 matrices with the scales applied",
        MEDIUM,
        ACCEPTED,
        "MPS has no float8",
    ),
    # Operators that only CUDA has.
    "torch.cudnn_convolution": Known(
        REFINE, _NO_KERNEL, "register it as `aten::convolution` with the same arguments", LOW, OPEN, _CUDNN
    ),
    "torch.cudnn_convolution_relu": Known(
        REFINE, _NO_KERNEL, "register it as a convolution and `relu_`", LOW, OPEN, _CUDNN
    ),
    "torch.cudnn_convolution_add_relu": Known(
        REFINE, _NO_KERNEL, "register it as a convolution, `add_` with alpha, and `relu_`", LOW, OPEN, _CUDNN
    ),
    "torch.cudnn_convolution_transpose": Known(
        REFINE, _NO_KERNEL, "register it as `aten::convolution` with `transposed=True`", LOW, OPEN, _CUDNN
    ),
    "torch.cudnn_batch_norm": Known(
        REFINE, _NO_KERNEL, "register it as `native_batch_norm`; the reserve space stays empty", LOW, OPEN, _CUDNN
    ),
    "torch.cudnn_affine_grid_generator": Known(
        REFINE, _NO_KERNEL, "register it as `affine_grid_generator` with aligned corners", LOW, OPEN, _CUDNN
    ),
    "torch.cudnn_grid_sampler": Known(
        REFINE, _NO_KERNEL, "register it as `grid_sampler_2d`, bilinear with zeros outside", LOW, OPEN, _CUDNN
    ),
    "torch.batch_norm_stats": Known(
        REFINE,
        _NO_KERNEL,
        "register `var_mean` over all dimensions but the second, and its inverse root",
        LOW,
        OPEN,
        _SYNC,
    ),
    "torch.batch_norm_elemt": Known(
        REFINE, _NO_KERNEL, "register the normalisation with given statistics as pointwise operators", LOW, OPEN, _SYNC
    ),
    "torch.batch_norm_gather_stats": Known(
        REFINE, _NO_KERNEL, "register it as the operator with counts, with equal counts", LOW, OPEN, _SYNC
    ),
    "torch.batch_norm_gather_stats_with_counts": Known(
        REFINE,
        _NO_KERNEL,
        "register the weighted mean and variance that `distributed.batchnorm` computes",
        LOW,
        OPEN,
        _SYNC,
    ),
    "torch.batch_norm_backward_reduce": Known(
        REFINE, _NO_KERNEL, "register the two sums of its gradient and those of weight and bias", LOW, OPEN, _SYNC
    ),
    "torch.batch_norm_backward_elemt": Known(
        REFINE, _NO_KERNEL, "register the gradient of `batch_norm_elemt` as pointwise operators", LOW, OPEN, _SYNC
    ),
    # Features that only a driver or NCCL has.
    **{
        name: Known(kind, instead, action, LOW, status, description)
        for kind, status, instead, description, actions in (
            (
                LIMIT,
                DESIGN,
                "raises an error: events cannot be sent to another process",
                "CUDA IPC: the driver sends an event to another process",
                {
                    "torch.cuda.Event.ipc_handle": "return a handle that names a file lock, if a program needs it",
                    "torch.cuda.Event.from_ipc_handle": "open the handle of `ipc_handle`, if that is implemented",
                    "torch.Event.ipc_handle": "follow `torch.cuda.Event.ipc_handle`",
                    "torch.Event.from_ipc_handle": "follow `torch.cuda.Event.from_ipc_handle`",
                },
            ),
            (
                LIMIT,
                DESIGN,
                _LOUD,
                "a handle that only a driver can use",
                {
                    "torch.Stream.native_handle": "return the id of the stream, if a program only compares handles",
                    "torch.cuda.CUDAGraph.get_graph_data": "list the operators that the capture recorded",
                    "torch.cuda.CUDAGraph.raw_cuda_graph": "none: it is an argument for the CUDA driver",
                    "torch.cuda.CUDAGraph.raw_cuda_graph_exec": "none: it is for the driver, after `instantiate`",
                    "torch.xpu.XPUGraph.raw_xpu_graph": "none: it is an argument for SYCL",
                    "torch.xpu.XPUGraph.raw_xpu_graph_exec": "none: it is for SYCL, after `instantiate`",
                },
            ),
            (
                LIMIT,
                DESIGN,
                _LOUD,
                "NCCL supports it; Gloo, which is used here, does not",
                {
                    "torch.distributed.ProcessGroup.split_group": "call `torch.distributed.new_group` with the same ranks",
                    "torch.distributed.shrink_group": "create a new group without the ranks, if none of them has failed",
                    "torch.distributed.Work.block_current_stream": "wait on the host, which also orders the stream",
                    "torch.distributed.Work.get_future_result": "return the future of `get_future` with a result of success",
                    "torch.distributed.fsdp.FSDPModule.set_symm_mem_for_comm": "ignore it with a warning: it changes only speed",
                },
            ),
            (
                REFINE,
                OPEN,
                _LOUD,
                "torch checks for NCCL by name, or reads its futures",
                {
                    "torch.distributed.algorithms.ddp_comm_hooks.ddp_zero_hook.hook_with_zero_step": (
                        "report `nccl` to torch if the program requested it, and test the overlap on Gloo for an hour"
                    ),
                    "torch.distributed.algorithms.ddp_comm_hooks.ddp_zero_hook.hook_with_zero_step_interleaved": (
                        "the same test with the interleaved hook"
                    ),
                    "torch.distributed.algorithms.ddp_comm_hooks.quantization_hooks.quantization_pertensor_hook": (
                        "return futures in the format of NCCL, with one list per input"
                    ),
                    "torch.distributed.algorithms.ddp_comm_hooks.quantization_hooks.quantization_perchannel_hook": (
                        "follow the hook per tensor, which uses the same futures"
                    ),
                },
            ),
            (
                REFINE,
                OPEN,
                _LOUD,
                "torch creates such graphs only for backends that register them in C++",
                {
                    "torch.accelerator.Graph": "provide the capture of `torch.cuda.CUDAGraph` under this name",
                    "torch.accelerator.Graph.capture_begin": "map to `CUDAGraph.capture_begin`",
                    "torch.accelerator.Graph.capture_end": "map to `CUDAGraph.capture_end`",
                    "torch.accelerator.Graph.debug_dump": "write the recorded operators, as `CUDAGraph.debug_dump` does",
                    "torch.accelerator.Graph.enable_debug_mode": "keep the flag for `debug_dump`",
                    "torch.accelerator.Graph.instantiate": "no-op: a recording is complete when the capture ends",
                    "torch.accelerator.Graph.pool": "return the id of the simulated pool",
                    "torch.accelerator.Graph.replay": "map to `CUDAGraph.replay`",
                    "torch.accelerator.Graph.reset": "delete the recording",
                },
            ),
            (
                REFINE,
                OPEN,
                _NO_KERNEL,
                "a kernel that only CUDA has",
                {
                    "torch.nn.attention.varlen.varlen_attn": "compute each sequence by `scaled_dot_product_attention`",
                    "torch.nn.attention.varlen.varlen_attn_out": "the same, written into `out`",
                    "torch.nn.functional.scaled_grouped_mm": "compute each group by `scaled_mm`",
                },
            ),
            (
                LIMIT,
                DESIGN,
                _LOUD,
                "2:4 sparsity: cuSPARSELt's and CUTLASS's kernels",
                {
                    "torch.sparse.to_sparse_semi_structured": "keep a dense tensor in the class: same values, no speed gain",
                    "torch.sparse.SparseSemiStructuredTensor": "accept dense storage for targets without the kernels",
                    "torch.sparse.SparseSemiStructuredTensor.from_dense": "follow its two subclasses",
                    "torch.sparse.SparseSemiStructuredTensor.to_dense": "return the dense storage",
                    "torch.sparse.SparseSemiStructuredTensorCUSPARSELT": "use dense storage in this class too",
                    "torch.sparse.SparseSemiStructuredTensorCUSPARSELT.from_dense": "store the tensor after a check of 2:4",
                    "torch.sparse.SparseSemiStructuredTensorCUSPARSELT.prune_dense_static_sort": (
                        "keep the two largest of four by `topk`"
                    ),
                    "torch.sparse.SparseSemiStructuredTensorCUTLASS": "use dense storage, as for cuSPARSELt",
                    "torch.sparse.SparseSemiStructuredTensorCUTLASS.prune_dense_static_sort": (
                        "use the same `topk`, with CUTLASS's order of ties"
                    ),
                },
            ),
        )
        for name, action in actions.items()
    },
}
