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
_NO_KERNEL = "nothing: torch raises `NotImplementedError`"
_ON_CPU = "keeps the tensor on the CPU, as if it had been made there"
_LOUD = "nothing: torch raises"
_NESTED_ON_CPU = "keeps a nested tensor that is made of MPS tensors on the CPU"

_ALLOCATOR = "an allocator for CUDA memory cannot serve the target"
_GREEN = "green contexts split the multiprocessors of an NVIDIA GPU"
_GDS = "GPUDirect Storage needs an NVIDIA driver"
_TUNING = "tuning measures matrix products of CUDA's libraries"
_METAL = "Metal source runs on Apple's GPUs alone"
_CUDNN = "cuDNN's kernel under a public name; the layers of torch.nn do not call it by this name"
_SYNC = "a kernel of SyncBatchNorm that torch has for CUDA; `SyncBatchNorm` itself works on every target"
_NESTED = "nested tensors of the strided layout exist on the CPU, CUDA and XPU alone; the jagged layout works on MPS"
_QUANTIZED = "MPS has no quantized tensors"

KNOWN: dict[str, Known] = {
    # What belongs to an NVIDIA GPU.
    "torch.cuda.CUDAPluggableAllocator": Known(
        LIMIT,
        _ONLY,
        "load the library and call its functions for host memory, if a program that only logs is met",
        description=_ALLOCATOR,
    ),
    "torch.cuda.CUDAPluggableAllocator.allocator": Known(
        LIMIT, _ONLY, "give the handle once the constructor above accepts a library", description=_ALLOCATOR
    ),
    "torch.cuda.change_current_allocator": Known(
        LIMIT,
        _ONLY,
        "let a setting turn the error into a warning, for programs that swap allocators for speed alone",
        description=_ALLOCATOR,
    ),
    "torch.cuda.GreenContext": Known(LIMIT, _ONLY, "none: no other device is split in this way", description=_GREEN),
    "torch.cuda.GreenContext.Stream": Known(
        LIMIT, _ONLY, "give an ordinary stream of the target if `create` is ever simulated", description=_GREEN
    ),
    "torch.cuda.GreenContext.create": Known(
        LIMIT,
        _ONLY,
        "simulate a context that is the whole device, once a library asks for one without a choice",
        description=_GREEN,
    ),
    "torch.cuda.GreenContext.max_workqueue_concurrency": Known(
        LIMIT, _ONLY, "answer 1 with a simulated `create`", description=_GREEN
    ),
    "torch.cuda.GreenContext.pop_context": Known(
        LIMIT, _ONLY, "undo `set_context` once that one changes something", description=_GREEN
    ),
    "torch.cuda.GreenContext.set_context": Known(
        LIMIT, _ONLY, "count it as a no-op with a simulated `create`", description=_GREEN
    ),
    "torch.cuda.gds.GdsFile": Known(
        LIMIT, _ONLY, "open an ordinary file: the same bytes, without GPUDirect's speed", description=_GDS
    ),
    "torch.cuda.gds.GdsFile.deregister_handle": Known(
        LIMIT, _ONLY, "do nothing when `GdsFile` is an ordinary file", description=_GDS
    ),
    "torch.cuda.gds.GdsFile.load_storage": Known(
        LIMIT, _ONLY, "read into host memory and copy from there to the target", description=_GDS
    ),
    "torch.cuda.gds.GdsFile.register_handle": Known(
        LIMIT, _ONLY, "keep the file's descriptor, which is all that an ordinary file needs", description=_GDS
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
        LIMIT, _ONLY, "none: there is one device at most, and nothing to distribute", description=_TUNING
    ),
    "torch.cuda.tunable.tune_gemm_in_file": Known(
        LIMIT,
        _ONLY,
        "read the file and report the shapes in it, so that a user sees that it had no effect",
        description=_TUNING,
    ),
    "torch.mps.compile_shader": Known(
        LIMIT,
        "raises `CudaOnlyError` on other targets than MPS",
        "name torch.compile in the hint, which a kernel in Python can use",
        description=_METAL,
    ),
    "torch.mps.load_metallib": Known(
        LIMIT,
        "raises `CudaOnlyError` on other targets than MPS",
        "none: a compiled library holds Apple's machine code",
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
        "build the C++ sources alone where a `setup.py` guards its kernels by a macro",
        description="CUDA sources need nvcc and an NVIDIA GPU",
    ),
    "torch.utils.cpp_extension.load": Known(
        LIMIT,
        "raises `CudaOnlyError` for CUDA sources; C++ is built and loaded",
        "list the `.cu` files in the error with the packages of ours that replace them",
        description="CUDA sources need nvcc and an NVIDIA GPU",
    ),
    "torch.utils.cpp_extension.load_inline": Known(
        LIMIT,
        "raises `CudaOnlyError` for `cuda_sources`; C++ is built and loaded",
        "show the first line of the kernel in the error, as inline sources have no file name",
        description="CUDA sources need nvcc and an NVIDIA GPU",
    ),
    "torch.xpu.XPUPluggableAllocator": Known(
        LIMIT,
        _ONLY,
        "follow what is decided for `CUDAPluggableAllocator`",
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
    # MPS's own limits.
    "torch.nested.nested_tensor": Known(
        LIMIT,
        _LOUD,
        "move the list to the CPU first when MPS is asked for, as is done for tensors that are on MPS",
        MEDIUM,
        ACCEPTED,
        _NESTED,
    ),
    "torch.nested.as_nested_tensor": Known(
        LIMIT,
        _NESTED_ON_CPU,
        "offer the jagged layout, which MPS has, in the report's hint",
        MEDIUM,
        ACCEPTED,
        _NESTED,
    ),
    "torch.nested.to_padded_tensor": Known(
        LIMIT,
        "pads on the CPU, and the result stays there",
        "move the result to MPS when the nested tensor was meant for it",
        MEDIUM,
        ACCEPTED,
        _NESTED,
    ),
    "torch.Tensor.to_padded_tensor": Known(
        LIMIT,
        "pads on the CPU, as the function does",
        "comes with `torch.nested.to_padded_tensor`: one operator",
        MEDIUM,
        ACCEPTED,
        _NESTED,
    ),
    "torch.quantize_per_tensor": Known(
        LIMIT,
        _ON_CPU,
        "hold it in a class of ours that says `mps`, as compressed sparse tensors are held",
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
        LIMIT, _LOUD, "ask upstream for it: FSDP frees its shards in this way", MEDIUM, ACCEPTED
    ),
    "torch.distributed.fsdp.fully_shard": Known(
        LIMIT,
        _LOUD,
        "accept a stream in the events of torch.mps, then free shards without resizing their storage",
        MEDIUM,
        ACCEPTED,
        "FSDP lets events of the accelerator wait on streams and resizes storages: torch.mps can do neither",
    ),
    "torch.nn.functional.scaled_mm": Known(
        LIMIT,
        "narrows float8 to float16, which this function refuses",
        "compute the product of the float16 matrices with the scales applied",
        MEDIUM,
        ACCEPTED,
        "MPS has no float8",
    ),
    # Devices whose random numbers have no offset.
    "torch.distributed.tensor.rand": Known(
        REFINE,
        _LOUD,
        "give torch's tracker a state of a seed and an offset on targets whose generator has none",
        MEDIUM,
        OPEN,
        "torch makes random DTensors with generators like CUDA's alone, whose state is a seed and an offset",
    ),
    "torch.distributed.tensor.randn": Known(
        REFINE,
        _LOUD,
        "comes with `torch.distributed.tensor.rand`: one tracker",
        MEDIUM,
        OPEN,
        "torch makes random DTensors with generators like CUDA's alone, whose state is a seed and an offset",
    ),
    # Forms that CUDA alone has.
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
        REFINE, _NO_KERNEL, "register it as the form with counts, all of them equal", LOW, OPEN, _SYNC
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
    # What a driver or NCCL has and nothing else.
    **{
        name: Known(kind, instead, action, LOW, status, description)
        for kind, status, instead, description, actions in (
            (
                LIMIT,
                DESIGN,
                "raises, and says that events cannot cross processes",
                "CUDA IPC: the driver hands an event to another process",
                {
                    "torch.cuda.Event.ipc_handle": "give a handle that names a file lock, if a program that waits by it is met",
                    "torch.cuda.Event.from_ipc_handle": "open what `ipc_handle` gives, once it gives something",
                    "torch.Event.ipc_handle": "follow `torch.cuda.Event.ipc_handle`",
                    "torch.Event.from_ipc_handle": "follow `torch.cuda.Event.from_ipc_handle`",
                },
            ),
            (
                LIMIT,
                DESIGN,
                _LOUD,
                "a number that only a driver can read",
                {
                    "torch.Stream.native_handle": "answer the stream's id, if a program is met that only compares handles",
                    "torch.cuda.CUDAGraph.get_graph_data": "list the operators that our capture recorded",
                    "torch.cuda.CUDAGraph.raw_cuda_graph": "none: whoever asks calls the CUDA driver with it",
                    "torch.cuda.CUDAGraph.raw_cuda_graph_exec": "none: it is for the driver, after `instantiate`",
                    "torch.xpu.XPUGraph.raw_xpu_graph": "none: whoever asks calls SYCL with it",
                    "torch.xpu.XPUGraph.raw_xpu_graph_exec": "none: it is for SYCL, after `instantiate`",
                },
            ),
            (
                LIMIT,
                DESIGN,
                _LOUD,
                "NCCL has it, and Gloo, which carries the messages here, has not",
                {
                    "torch.distributed.ProcessGroup.split_group": "answer by `torch.distributed.new_group` of the same ranks",
                    "torch.distributed.shrink_group": "make a new group without the ranks, as long as none of them has failed",
                    "torch.distributed.Work.block_current_stream": "wait on the host, which orders the stream too",
                    "torch.distributed.Work.get_future_result": "give the future of `get_future` with a result of success",
                    "torch.distributed.fsdp.FSDPModule.set_symm_mem_for_comm": "ignore it with a warning: it changes speed alone",
                },
            ),
            (
                REFINE,
                OPEN,
                _LOUD,
                "torch asks for NCCL by name, or reads its futures",
                {
                    "torch.distributed.algorithms.ddp_comm_hooks.ddp_zero_hook.hook_with_zero_step": (
                        "show torch `nccl` where that was asked for, and try the overlap on Gloo in a test of an hour"
                    ),
                    "torch.distributed.algorithms.ddp_comm_hooks.ddp_zero_hook.hook_with_zero_step_interleaved": (
                        "the same test with the interleaved hook"
                    ),
                    "torch.distributed.algorithms.ddp_comm_hooks.quantization_hooks.quantization_pertensor_hook": (
                        "give futures of staged works in NCCL's form, a list per input"
                    ),
                    "torch.distributed.algorithms.ddp_comm_hooks.quantization_hooks.quantization_perchannel_hook": (
                        "comes with the hook per tensor: the same futures"
                    ),
                },
            ),
            (
                REFINE,
                OPEN,
                _LOUD,
                "torch makes such graphs for backends that register them in C++",
                {
                    "torch.accelerator.Graph": "put our capture of `torch.cuda.CUDAGraph` under this name",
                    "torch.accelerator.Graph.capture_begin": "map to `CUDAGraph.capture_begin` with that",
                    "torch.accelerator.Graph.capture_end": "map to `CUDAGraph.capture_end`",
                    "torch.accelerator.Graph.debug_dump": "write the recorded operators, as `CUDAGraph.debug_dump` does",
                    "torch.accelerator.Graph.enable_debug_mode": "keep the flag for `debug_dump`",
                    "torch.accelerator.Graph.instantiate": "do nothing: a recording is ready when it ends",
                    "torch.accelerator.Graph.pool": "give the id of our pool",
                    "torch.accelerator.Graph.replay": "map to `CUDAGraph.replay`",
                    "torch.accelerator.Graph.reset": "drop the recording",
                },
            ),
            (
                REFINE,
                OPEN,
                _NO_KERNEL,
                "a kernel of CUDA alone",
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
                    "torch.sparse.to_sparse_semi_structured": "keep the dense tensor behind the class: right values, no speed",
                    "torch.sparse.SparseSemiStructuredTensor": "accept dense storage for targets without the kernels",
                    "torch.sparse.SparseSemiStructuredTensor.from_dense": "follow its two subclasses",
                    "torch.sparse.SparseSemiStructuredTensor.to_dense": "give back what dense storage holds",
                    "torch.sparse.SparseSemiStructuredTensorCUSPARSELT": "dense storage under this class too",
                    "torch.sparse.SparseSemiStructuredTensorCUSPARSELT.from_dense": "store the tensor after a check of 2:4",
                    "torch.sparse.SparseSemiStructuredTensorCUSPARSELT.prune_dense_static_sort": (
                        "keep the two largest of four by `topk`"
                    ),
                    "torch.sparse.SparseSemiStructuredTensorCUTLASS": "dense storage, as for cuSPARSELt",
                    "torch.sparse.SparseSemiStructuredTensorCUTLASS.prune_dense_static_sort": (
                        "the same `topk`, with CUTLASS's order of ties"
                    ),
                },
            ),
        )
        for name, action in actions.items()
    },
}
