"""Why nothing can be run for a name here: by the name where its call is out of reach, else by torch's words.

`out_of_reach` is asked only where no host and no plain torch could make a call.
"""

from __future__ import annotations

import re

# Pattern of names → why no CPU and no virtual device can call them.
OUT_OF_REACH: dict[str, str] = {
    r"torch\.(cuda\.)?Event\.(from_)?ipc_handle": "CUDA IPC: an event crosses processes on an NVIDIA GPU alone",
    r"torch\.Stream\.native_handle": "the handle of a driver's stream: there is none without a driver",
    r"torch\.cuda\.CUDAGraph\.get_graph_data": "reads the driver's graph by the package cuda.bindings",
    r"torch\.cuda\.\w+Storage\.from_buffer": "torch refuses it for every storage of a device",
    r"torch\.(indices|values)_copy": "torch has no kernel for it for sparse tensors",
    r"torch\.miopen_\w+": "MIOpen, AMD's library: in torch's build for ROCm alone",
    r"torch\.(fbgemm_(pack_quantized_matrix|linear_(fp16|int8)_weight\w*)|quantized_(gru|lstm|rnn_\w+)_cell)": (
        "FBGEMM: x86 alone; the verification run is on aarch64"
    ),
    r"torch\.distributed\.ProcessGroupGloo\.\w+": "a method of every backend that Gloo refuses: NCCL's",
    r"torch\.distributed\.Work\.(block_current_stream|get_future_result)": "of NCCL's works: Gloo's have none",
    r"torch\.distributed\.ProcessGroup\.split_group": (
        "for groups that are bound to a device, as NCCL's are: on Gloo the process can crash, in plain torch too"
    ),
    r"torch\.distributed\.tensor\.randn?": "torch asks for a generator with a seed and an offset, as CUDA's",
    r"torch\.sparse\.(SparseSemiStructuredTensor.*|to_sparse_semi_structured)": "2:4 sparsity: CUDA's kernels alone",
    r"torch\.utils\.benchmark\.Timer\.(autorange|repeat)": "removed from torch: names Timer.blocked_autorange",
    r"torch\.library\.fallthrough_kernel": "a mark for the dispatcher: torch raises when it is called",
    r"torch\.distributed\.shrink_group": "NCCL alone can leave ranks out of a group",
    r".*\.ddp_zero_hook\.\w+": "torch refuses it on Gloo, which may hang: needs NCCL",
    r".*\.quantization_hooks\.\w+": "reads the value of a future in NCCL's form: fails on Gloo in plain torch too",
    r".*\.bf16_compress_hook": "torch asks for NCCL 2.10 before it compresses",
    r"torch\.distributed\.fsdp\.FSDPModule\.set_symm_mem_for_comm": "symmetric memory of NCCL",
    r"torch\.distributed\.tensor\.debug\.visualize_sharding": "needs the package tabulate or matplotlib",
    r"torch\.distributed\.breakpoint": "opens the debugger, which reads the keyboard",
    r"torch\.utils\.rename_privateuse1_backend": "changes the device types of the process for good",
    r"torch\.serialization\.validate_cuda_device": "asks whether torch itself sees CUDA; torch.load is translated",
    r"torch\.serialization\.validate_hpu_device": "for Intel's HPU, whose package is not here",
    r"torch\.utils\.benchmark\.Timer\.collect_callgrind": "runs the `python` of the PATH in valgrind: it has no torch",
    r"torch\.utils\.cpp_extension\.SyclExtension": "needs Intel's SYCL runtime",
    r"torch\.nn\.Module\.[gs]et_extra_state": "abstract: torch calls it where a subclass defines it",
    r"torch\.autograd\.variable": "removed from torch: raises and names torch.tensor",
    r"torch\.fx\.Tracer\.(iter|to_bool)": "raises by design: a traced value has no items and no truth",
}

# Type of the exception, words in it → why there is nothing to run.
REFUSALS: tuple[tuple[str, str, str], ...] = (
    ("CudaOnlyError", "", "needs an NVIDIA GPU or its libraries: TorchDevice raises and says so"),
    ("ModuleNotFoundError", "No module named", "needs a package that is not installed"),
    ("NotImplementedError", "Could not run 'aten::", "torch has no kernel for it on the CPU"),
    ("NotImplementedError", "", "abstract: a subclass defines it"),
    ("RuntimeError", "is now removed|was removed", "removed from torch"),
    ("RuntimeError", "when none is available", "needs an accelerator, and torch sees none"),
    ("TypeError", "instantiate abstract class|cannot be instantiated", "abstract: no object of it can be made"),
)


def out_of_reach(name: str, error: str) -> str:
    """The reason, in words; empty if none is known."""
    for pattern, reason in OUT_OF_REACH.items():
        if re.fullmatch(pattern, name):
            return reason
    kind, _, words = error.partition(": ")
    return next((reason for type_, text, reason in REFUSALS if kind == type_ and re.search(text, words)), "")
