"""Whether a name with a device-like parameter is safe: translated, answered, or proven by a call that gave "cuda"."""

from __future__ import annotations

import ast

from tools.catalog.databases import MODULEINFO
from tools.catalog.results import Called
from torchdevice.catalog.entries import Entry
from torchdevice.catalog.measured import PASSED
from torchdevice.catalog.treatment import PASSTHROUGH

# Device-like parameters that ask for nothing, or for nothing that a translation could change, and why. A name that
# no row covers and no call proves fails tests/catalog/test_devices.py: that is how a new torch's additions are found.
_REFUSED = "a legacy storage takes no device: it refuses one by itself"
_RECORD = "a record of the profiler, written by torch"
_OWN = "internal to the wrapper, which is called with the devices that it found"
NOT_NEEDED = {
    **{
        f"torch.{name}Storage": _REFUSED for name in ("Bool", "Byte", "Char", "Double", "Float", "Int", "Long", "Short")
    },
    "torch.autograd.profiler.FunctionEvent": _RECORD,
    "torch.jit.Future": "the C++ class under torch.futures.Future, which is what programs make",
    "torch.accelerator.device_index": "an index of the accelerator that is here; without one nothing to choose",
    "torch.backends.cuda.cuFFTPlanCache": "keeps an index; torch.backends.cuda.cufft_plan_cache is answered",
    "torch.utils.cpp_extension.include_paths": "folders of the CUDA toolkit, not a device",
    "torch.utils.cpp_extension.library_paths": "folders of the CUDA toolkit, not a device",
    "torch.nn.DataParallel.gather": _OWN,
    "torch.nn.DataParallel.replicate": _OWN,
    "torch.nn.DataParallel.scatter": _OWN,
    "torch.nn.parallel.DistributedDataParallel.gather": _OWN,
    "torch.nn.parallel.DistributedDataParallel.scatter": _OWN,
    "torch.nn.parallel.DistributedDataParallel.to_kwargs": _OWN,
    "torch.nn.parallel.parallel_apply": _OWN,
    "torch.distributed.ProcessGroup.split_group": "programs call torch.distributed.new_group",
    "torch.distributed.ProcessGroupGloo.allocate_tensor": "Gloo allocates no tensors, on any device",
    "torch.distributed.ProcessGroupGloo.supports_tensor_alloc": "Gloo allocates no tensors, on any device",
    "torch.Tensor.is_pinned": "answers False for every device that is not here",
    "torch.UntypedStorage.is_pinned": "answers False for every device that is not here",
    "torch.TypedStorage.is_pinned": "answers False for every device that is not here",
}


def needs_proof(entry: Entry) -> bool:
    """Whether a call could ask this name for a device that is not here, with nothing of ours in between."""
    return bool(entry.device_parameters) and entry.treatment == PASSTHROUGH and entry.name not in NOT_NEEDED


def proven(entry: Entry, called: Called | None) -> bool:
    """Whether a call that gave the device was made under TorchDevice on a machine without CUDA, and worked."""
    if called is None or called.outcomes.get("cpu") != PASSED:
        return False
    return called.by == MODULEINFO or gives_the_device(entry.name, called.call)  # samples of modules are given it


def gives_the_device(name: str, call: str) -> bool:
    """Whether an argument of `name` itself, or of the class whose method it is, is the device that is asked for."""
    own = set(name.split(".")[-2:])
    calls = [node for node in ast.walk(ast.parse(call or "None", mode="eval")) if isinstance(node, ast.Call)]
    return any(
        _asks(argument)
        for node in calls
        if ast.unparse(node.func).rpartition(".")[2] in own
        for argument in (*node.args, *(keyword.value for keyword in node.keywords))
    )


def _asks(node: ast.AST) -> bool:
    """`D` or "cuda", alone or within a list or a condition; what another call is given is its own affair."""
    if isinstance(node, ast.Call):
        return ast.unparse(node.func) == "torch.device" and any(map(_asks, node.args))
    if isinstance(node, ast.Name):
        return node.id == "D"
    if isinstance(node, ast.Constant):
        return bool(node.value == "cuda")
    return any(map(_asks, ast.iter_child_nodes(node)))
