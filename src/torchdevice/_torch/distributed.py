"""Private names of torch.distributed that TorchDevice uses, each with its reason and expiry. Others are in `core`.

Importing this module imports torch.distributed, which `import torch` has already done.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist

# The method that waits for a collective, and the file that launches workers. Expiry: other names for them.
WORK_WAIT = "torch.distributed.Work.wait"
LAUNCHER = "torch/distributed/run"
# Counts processors for torchrun's `--nproc-per-node=auto`. Older versions call `os` directly, which is not patched.
# Expiry: a single function in torchrun that counts devices.
CPU_COUNT = "torch._utils.cpu_count" if hasattr(torch._utils, "cpu_count") else None
# A context that coalesces collectives. Many libraries use it. Expiry: a public name.
COALESCING = "torch.distributed.distributed_c10d._coalescing_manager"
# Only rejects SyncBatchNorm layers in modules on the CPU. Expiry: kernels of SyncBatchNorm for the CPU.
DDP_REFUSES_BATCH_NORM = "torch.nn.parallel.DistributedDataParallel._passing_sync_batchnorm_handle"

# Whether torch's gradient scaler for FSDP supports a device type. Its list lacks `mps`. Expiry: a check of the
# accelerator instead of a list.
SCALER_KNOWS = "torch.distributed.fsdp.sharded_grad_scaler._is_supported_device"


def unboxed_group(boxed_group: Any) -> Any:
    """The process group in an operator's argument. Expiry: c10d operators that take groups by name."""
    return dist.ProcessGroup.unbox(boxed_group)


def unboxed_work(boxed_work: Any) -> Any:
    """The work in an operator's result. Expiry: as above."""
    return dist.Work.unbox(boxed_work)


def boxed(work: Any) -> Any:
    """A work as an operator returns it. Expiry: as above."""
    return work.boxed()


_reducing = threading.local()


@contextlib.contextmanager
def reducing(operation: Any) -> Iterator[None]:
    """Store the reduction that Python code requests: not every torch version shows it in the operator's argument."""
    _reducing.number = int(operation.op.value)
    try:
        yield
    finally:
        _reducing.number = None


def number_of_reduction(boxed_reduction: Any) -> int | None:
    """The reduction in an operator's argument; None if this torch does not show it and the call comes from C++.

    Expiry: torch 2.9, whose reductions have no method `op`.
    """
    if boxed_reduction._has_method("op"):
        return int(boxed_reduction.op())
    return getattr(_reducing, "number", None)


_SPARE = torch._C.DispatchKey.PrivateUse1


def reduce_as_torch_does(operator: Any, backend: Any, group: Any, arguments: Sequence[Any]) -> Any:
    """Calls torch's own kernel of a reduction on CPU tensors. Our kernel has replaced it under the key `CPU`.

    The kernels of all device types are the same. Each uses the group's backend for its own type. So the call goes to
    the kernel of an unused type, with a group that has the backend for that type. Expiry: as `number_of_reduction`.
    """
    stand_in = dist.ProcessGroup(group.rank(), group.size())
    stand_in._register_backend(torch.device("privateuseone"), dist.ProcessGroup.BackendType.CUSTOM, backend)
    names = [argument.name for argument in operator._schema.arguments]
    given = [
        stand_in.boxed() if name == "process_group" else each for name, each in zip(names, arguments, strict=False)
    ]
    return operator.redispatch(torch._C.DispatchKeySet(_SPARE), *given)


def reduction_by_number(number: int) -> Any:
    """The member of `ReduceOp.RedOpType` with a number."""
    return next(each for each in dist.ReduceOp.RedOpType.__members__.values() if int(each.value) == number)


def backend_of(group: Any, device: torch.device) -> Any:
    """The backend of a group for a device. Expiry: public access to the backends of a group."""
    return group._get_backend(device)


def reductions() -> list[str]:
    """The methods of process groups that take a reduction among their options. Expiry: public signatures."""
    names = ("allreduce", "allreduce_coalesced", "reduce", "reduce_scatter", "_reduce_scatter_base")
    newer = ("reduce_scatter_tensor_coalesced", "reduce_scatter_single", "reduce_scatter_single_coalesced")
    return [name for name in (*names, *newer) if hasattr(dist.ProcessGroup, name)]


def group_name(group: Any) -> str:
    """The name of a group in this process."""
    return str(group.group_name)


def under_another_backend_name(function: Any, kind: Callable[[], str]) -> Any:
    """A copy of a torch function that sees the type returned by `kind` as the third-party device type.

    `SyncBatchNorm.forward` rejects tensors on device types that it does not list, except the third-party type.
    Expiry: a SyncBatchNorm that checks for an operator instead of a device type.
    """
    import types

    from_c = _Before(torch._C, {"_get_privateuse1_backend_name": kind})
    space = {**function.__globals__, "torch": _Before(torch, {"_C": from_c})}
    made = types.FunctionType(function.__code__, space, function.__name__, function.__defaults__, function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


class _Before:
    """An object with the attributes in `extra`, and then those of `behind`."""

    def __init__(self, behind: Any, extra: dict[str, Any]) -> None:
        self.__dict__.update(extra)
        self._behind = behind

    def __getattr__(self, name: str) -> Any:
        return getattr(self._behind, name)
