"""The reasons why a name cannot be called here: by the name itself, else by the error message of torch.

`out_of_reach` is called only for names that neither plain torch nor any host could call.
"""

from __future__ import annotations

import re

# Pattern of names → the reason why the CPU and virtual devices cannot call them.
OUT_OF_REACH: dict[str, str] = {
    r"torch\.(cuda\.)?Event\.(from_)?ipc_handle": "CUDA IPC: only an NVIDIA GPU can send an event to another process",
    r"torch\.Stream\.native_handle": "the handle of a driver's stream, which needs a driver",
    r"torch\.cuda\.CUDAGraph\.get_graph_data": "reads the driver's graph with the package cuda.bindings",
    r"torch\.cuda\.\w+Storage\.from_buffer": "torch refuses it for every storage of a device",
    r"torch\.(indices|values)_copy": "torch has no kernel for it for sparse tensors",
    r"torch\.miopen_\w+": "needs MIOpen, AMD's library, which only the ROCm build of torch has",
    r"torch\.(fbgemm_(pack_quantized_matrix|linear_(fp16|int8)_weight\w*)|quantized_(gru|lstm|rnn_\w+)_cell)": (
        "needs FBGEMM, which exists only for x86; the verification run is on aarch64"
    ),
    r"torch\.distributed\.ProcessGroupGloo\.\w+": "a method of NCCL that Gloo does not support",
    r"torch\.distributed\.Work\.(block_current_stream|get_future_result)": "a method of NCCL that Gloo lacks",
    r"torch\.distributed\.ProcessGroup\.split_group": (
        "for groups that are bound to a device, as with NCCL; on Gloo the process can crash, in plain torch too"
    ),
    r"torch\.sparse\.(SparseSemiStructuredTensor.*|to_sparse_semi_structured)": "2:4 sparsity: only CUDA has kernels",
    r"torch\.utils\.benchmark\.Timer\.(autorange|repeat)": "removed from torch; use Timer.blocked_autorange",
    r"torch\.library\.fallthrough_kernel": "a marker for the dispatcher; torch raises an error if it is called",
    r"torch\.distributed\.shrink_group": "only NCCL can remove ranks from a group",
    r".*\.ddp_zero_hook\.\w+": "needs NCCL; torch refuses it on Gloo, which may hang",
    r".*\.quantization_hooks\.\w+": "reads a future in the format of NCCL; it fails on Gloo in plain torch too",
    r".*\.bf16_compress_hook": "torch requires NCCL 2.10",
    r"torch\.distributed\.fsdp\.FSDPModule\.set_symm_mem_for_comm": "symmetric memory of NCCL",
    r"torch\.distributed\.tensor\.debug\.visualize_sharding": "needs the package tabulate or matplotlib",
    r"torch\.distributed\.breakpoint": "opens the debugger, which reads the keyboard",
    r"torch\.utils\.rename_privateuse1_backend": "changes the device types of the process permanently",
    r"torch\.serialization\.validate_cuda_device": "checks whether torch itself has CUDA; torch.load is translated",
    r"torch\.serialization\.validate_hpu_device": "for Intel's HPU, whose package is not installed",
    r"torch\.utils\.benchmark\.Timer\.collect_callgrind": "runs `python` from the PATH in valgrind; it has no torch",
    r"torch\.utils\.cpp_extension\.SyclExtension": "needs Intel's SYCL runtime",
    r"torch\.nn\.Module\.[gs]et_extra_state": "abstract; torch calls it if a subclass defines it",
    r"torch\.autograd\.variable": "removed from torch; the error names torch.tensor",
    r"torch\.fx\.Tracer\.(iter|to_bool)": "raises an error by design: a traced value has no items and no truth value",
}

# Type of the exception, pattern of its message → the reason why the name cannot be called.
REFUSALS: tuple[tuple[str, str, str], ...] = (
    ("CudaOnlyError", "", "needs an NVIDIA GPU or its libraries; TorchDevice raises an error"),
    ("ModuleNotFoundError", "No module named", "needs a package that is not installed"),
    ("NotImplementedError", "Could not run 'aten::", "torch has no kernel for it on the CPU"),
    ("NotImplementedError", "", "abstract; a subclass defines it"),
    ("RuntimeError", "is now removed|was removed", "removed from torch"),
    ("RuntimeError", "when none is available", "needs an accelerator, and torch finds none"),
    ("TypeError", "instantiate abstract class|cannot be instantiated", "abstract; it cannot be instantiated"),
)


def out_of_reach(name: str, error: str) -> str:
    """The reason; empty if none is known."""
    for pattern, reason in OUT_OF_REACH.items():
        if re.fullmatch(pattern, name):
            return reason
    kind, _, words = error.partition(": ")
    return next((reason for type_, text, reason in REFUSALS if kind == type_ and re.search(text, words)), "")
