"""CUDA's libraries under their Python names: the runtime (cudart), NVTX, NCCL on one process, tunable operators."""

from __future__ import annotations

import enum
import itertools
import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch

from torchdevice._torch.core import RealDevice
from torchdevice.answers.devices import NCCL_VERSION, Table, constant, nothing
from torchdevice.answers.real import Target


class CudaStatus(enum.IntEnum):
    """`cudart().cudaError`: codes of CUDA's runtime that Python code compares with."""

    success = 0
    invalidValue = 1  # noqa: N815 - CUDA's own names
    memoryAllocation = 2  # noqa: N815
    initializationError = 3  # noqa: N815
    notReady = 600  # noqa: N815
    unknown = 999

    @classmethod
    def _missing_(cls, value: object) -> CudaStatus:
        return cls.unknown


_TEXTS = {
    CudaStatus.success: "no error",
    CudaStatus.invalidValue: "invalid argument",
    CudaStatus.memoryAllocation: "out of memory",
    CudaStatus.initializationError: "initialization error",
    CudaStatus.notReady: "device not ready",
    CudaStatus.unknown: "unknown error",
}


def cudart(target: Target) -> SimpleNamespace:
    """The runtime module: profiler switches and page locking succeed and do nothing."""
    succeed = constant(CudaStatus.success)
    names = ("cudaProfilerStart", "cudaProfilerStop", "cudaHostRegister", "cudaHostUnregister")
    return SimpleNamespace(
        cudaError=CudaStatus,
        cudaGetErrorString=lambda code: _TEXTS[CudaStatus(code)],
        cudaMemGetInfo=target.free_and_total,
        cudaStreamCreate=succeed,
        cudaStreamDestroy=succeed,
        **dict.fromkeys(names, succeed),
    )


def nvtx() -> SimpleNamespace:
    """Ranges nest per thread and give their depth; nobody reads them."""
    local = threading.local()
    handles = itertools.count(1)

    def push(_: str) -> int:
        local.depth = getattr(local, "depth", 0) + 1
        return int(local.depth) - 1

    def pop() -> int:
        local.depth = getattr(local, "depth", 0) - 1
        return int(local.depth)

    return SimpleNamespace(
        rangePushA=push,
        rangePop=pop,
        rangeStartA=lambda _: next(handles),
        rangeEnd=nothing,
        markA=nothing,
        deviceRangeStart=lambda *_: next(handles),
        deviceRangeEnd=nothing,
    )


def nccl_functions() -> Table:
    """Collectives over a list of tensors in one process, which is what `torch.cuda.nccl` offers."""

    def all_reduce(inputs: Any, outputs: Any, *_: Any) -> None:
        result = _total(inputs)
        for output in outputs:
            output.copy_(result)

    def reduce(inputs: Any, output: torch.Tensor, *_: Any) -> None:
        output.copy_(_total(inputs))

    def broadcast(inputs: Any, root: int, *_: Any) -> None:
        for each in inputs:
            each.copy_(inputs[root])

    def all_gather(inputs: Any, outputs: Any, *_: Any) -> None:
        gathered = torch.cat([each.reshape(-1).to(inputs[0].device) for each in inputs])
        for output in outputs:
            output.copy_(gathered.view_as(output))

    def reduce_scatter(inputs: Any, outputs: Any, *_: Any) -> None:
        for output, part in zip(outputs, _total(inputs).reshape(len(outputs), -1), strict=True):
            output.copy_(part.view_as(output))

    return {
        "_nccl_version": constant(NCCL_VERSION),
        "_nccl_version_suffix": constant(b""),
        "_nccl_unique_id": lambda: bytes(128),
        "_nccl_init_rank": constant(None),
        "_nccl_all_reduce": all_reduce,
        "_nccl_reduce": reduce,
        "_nccl_broadcast": broadcast,
        "_nccl_all_gather": all_gather,
        "_nccl_reduce_scatter": reduce_scatter,
    }


def comm_functions(target: Target) -> Table:
    """`broadcast`, `scatter`, `gather` between devices of one process; on one device a copy is the tensor itself."""

    def on(tensor: torch.Tensor, index: int) -> torch.Tensor:
        if target.type == "cpu":
            return tensor
        return tensor.to(RealDevice(target.type, index if target.native_streams else 0))

    def broadcast(tensor: torch.Tensor, devices: Sequence[int]) -> list[torch.Tensor]:
        return [on(tensor if position == 0 else tensor.clone(), index) for position, index in enumerate(devices)]

    def broadcast_out(tensor: torch.Tensor, out: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        return tuple(each.copy_(tensor) for each in out)

    def broadcast_coalesced(tensors: Any, devices: Any, buffer_size: int) -> list[list[torch.Tensor]]:
        copies = [broadcast(tensor, devices) for tensor in tensors]
        return [[copy[position] for copy in copies] for position, _ in enumerate(devices)]

    def scatter(tensor: torch.Tensor, devices: Any, chunk_sizes: Any = None, dim: int = 0, _: Any = None) -> Any:
        parts = tensor.split(list(chunk_sizes), dim) if chunk_sizes else tensor.chunk(len(devices), dim)
        return tuple(on(part, index).contiguous() for part, index in zip(parts, devices, strict=False))

    def scatter_out(tensor: torch.Tensor, out: Sequence[torch.Tensor], dim: int = 0, _: Any = None) -> Any:
        parts = tensor.split([each.size(dim) for each in out], dim)
        return tuple(each.copy_(part) for each, part in zip(out, parts, strict=True))

    def gather(tensors: Any, dim: int, destination: Any) -> torch.Tensor:
        index = target.current() if destination is None else destination
        return torch.cat([on(tensor, index) for tensor in tensors], dim)

    def gather_out(tensors: Any, out: torch.Tensor, dim: int) -> torch.Tensor:
        return out.copy_(torch.cat([tensor.to(out.device) for tensor in tensors], dim))

    return {
        "_broadcast": broadcast,
        "_broadcast_out": broadcast_out,
        "_broadcast_coalesced": broadcast_coalesced,
        "_scatter": scatter,
        "_scatter_out": scatter_out,
        "_gather": gather,
        "_gather_out": gather_out,
    }


def reduce_add(inputs: Any, destination: Any = None) -> torch.Tensor:
    """`comm.reduce_add` where all devices are one: torch's own refuses tensors on the CPU."""
    sizes = {tuple(each.size()) for each in inputs}
    if len(sizes) > 1:
        raise ValueError(f"inputs have different sizes: {sorted(sizes)}")
    return _total(inputs) if len(inputs) > 1 else inputs[0]


def _total(inputs: Sequence[torch.Tensor]) -> torch.Tensor:
    first = inputs[0].clone()
    for other in inputs[1:]:
        first += other.to(first.device)
    return first


_TUNABLE = {"enabled": False, "tuning": True, "untuned": False, "filename": "", "duration": 30, "iterations": 100}


def tunable_functions() -> Table:
    """The settings of tunable operators: kept and given back; nothing is tuned where cuBLAS is not."""
    state: dict[str, Any] = {**_TUNABLE, "buffer": -1}

    def setter(name: str) -> Any:
        def set_value(value: Any, *_: Any) -> None:
            state[name] = value

        return set_value

    def getter(name: str) -> Any:
        return lambda: state[name]

    pairs = {
        "enabled": ("_cuda_tunableop_enable", "_cuda_tunableop_is_enabled"),
        "tuning": ("_cuda_tunableop_tuning_enable", "_cuda_tunableop_tuning_is_enabled"),
        "untuned": ("_cuda_record_untuned_enable", "_cuda_record_untuned_is_enabled"),
        "filename": ("_cuda_tunableop_set_filename", "_cuda_tunableop_get_filename"),
        "duration": ("_cuda_tunableop_set_max_tuning_duration", "_cuda_tunableop_get_max_tuning_duration"),
        "iterations": ("_cuda_tunableop_set_max_tuning_iterations", "_cuda_tunableop_get_max_tuning_iterations"),
        "buffer": ("_cuda_tunableop_set_rotating_buffer_size", "_cuda_tunableop_get_rotating_buffer_size"),
    }
    table: Table = {}
    for name, (set_name, get_name) in pairs.items():
        table[set_name], table[get_name] = setter(name), getter(name)
    return {
        **table,
        "_cuda_tunableop_get_results": constant(()),
        "_cuda_tunableop_get_validators": constant(()),
        "_cuda_tunableop_read_file": constant(False),
        "_cuda_tunableop_write_file": constant(False),
        "_cuda_tunableop_set_numerical_check_tolerances": nothing,
    }
