"""The last executor of the chain: runs every operator on the CPU. Arguments are copied there, results copied back.

The operator's `Plan` says what is copied. Strides are kept, and a storage that several arguments share is copied once.
A written argument is copied back into the caller's tensor, so that views and their bases still share memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from torchdevice._torch import dispatcher
from torchdevice._torch.core import RealDevice, RealGenerator, RealTensor, tensor_to
from torchdevice.fallback import sparse
from torchdevice.fallback.plan import FUNCTIONAL, Plan
from torchdevice.fallback.sparse import CompressedTensor
from torchdevice.policy.dtypes import dtype_on

CPU = RealDevice("cpu")
NAME = "cpu"
_GENERATOR = "generator"

# The operators are called, because the methods are patched while a session is active.
_copy_to = torch.ops.aten._to_copy.default
_copy_into = torch.ops.aten.copy_.default
_copy_into_coo = torch.ops.aten.copy_sparse_to_sparse_.default  # torch 2.9 has no `copy_` of these on MPS
_set_storage = torch.ops.aten.set_.source_Storage_storage_offset
_as_strided = torch.ops.aten.as_strided.default
_resize = torch.ops.aten.resize_.default
_empty_strided = torch.ops.aten.empty_strided.default
_expand = torch.ops.aten.expand.default
_empty = torch.ops.aten.empty.memory_format


class Crossing:
    """The copies of one call to the CPU and back. `moved` counts bytes in both directions."""

    __slots__ = ("_by_identity", "_copies", "_shared", "_target_type", "device", "moved")

    def __init__(self, target_type: str) -> None:
        self._target_type = target_type
        self.device: RealDevice | None = None
        self.moved = 0
        self._by_identity: dict[int, torch.Tensor] = {}
        self._shared: dict[int, torch.UntypedStorage] = {}
        self._copies: dict[str, Any] = {}

    def enter(self, value: Any, name: str, plan: Plan) -> Any:
        """An argument for the CPU's kernel."""
        if isinstance(value, RealTensor):
            entered = self._tensor(value, name in plan.outs)
        elif isinstance(value, (list, tuple)) and any(isinstance(item, RealTensor) for item in value):
            entered = [
                self._tensor(item, name in plan.outs) if isinstance(item, RealTensor) else item for item in value
            ]
        elif isinstance(value, RealDevice):
            # A device that the caller names is where results go, also when it is not the target.
            if self.device is None or value.type != self.device.type or value.index is not None:
                self.device = value
            return CPU if value.type == self._target_type else value
        elif isinstance(value, RealGenerator):
            return value if value.device.type == "cpu" else dispatcher.cpu_copy_of_generator(value)
        else:
            return value
        if name in plan.written or name in plan.outs:
            self._copies[name] = entered
        return entered

    def _tensor(self, tensor: torch.Tensor, is_out: bool) -> torch.Tensor:
        if tensor.device.type != self._target_type:
            return tensor
        if self.device is None or (self.device.index is None and self.device.type == self._target_type):
            self.device = tensor.device
        known = self._by_identity.get(id(tensor))
        if known is not None:  # also for a result that is an argument: kernels compare identity
            return known
        if is_out and tensor.layout is torch.strided:
            return _empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=CPU)
        entered = self._moved(tensor)
        self._by_identity[id(tensor)] = entered
        return entered

    def _moved(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.layout is not torch.strided:
            return self._sparse(tensor)
        shared = self._shared.get(_storage_of(tensor)) if self._shared else None
        if shared is not None:
            empty = _empty([0], dtype=tensor.dtype, device=CPU)
            return _set_storage(empty, shared, tensor.storage_offset(), tensor.size(), tensor.stride())
        once = _without_repetition(tensor)
        self.moved += _bytes(once)
        entered = tensor_to(once, CPU)
        if entered.stride() != once.stride() and once.numel() > 1:
            entered = _restrided(entered, once)
        return entered if once is tensor else _expand(entered, tensor.size())

    def _sparse(self, tensor: torch.Tensor) -> torch.Tensor:
        if isinstance(tensor, CompressedTensor):
            return tensor.held
        self.moved += sparse_bytes(tensor)
        return move_sparse(tensor, CPU)

    def share(self, tensors: list[torch.Tensor], writes: bool) -> None:
        """Copy each storage that several of these tensors share as a whole, once."""
        strided = [tensor for tensor in tensors if tensor.layout is torch.strided]
        pointers = [_storage_of(tensor) for tensor in strided]
        if len(set(pointers)) == len(pointers):
            return
        groups: dict[int, list[torch.Tensor]] = {}
        for pointer, tensor in zip(pointers, strided, strict=True):
            if tensor.device.type == self._target_type and tensor.numel():
                groups.setdefault(pointer, []).append(tensor)
        for key, group in groups.items():
            if len({id(tensor) for tensor in group}) == 1:
                continue
            storage = group[0].untyped_storage()
            size = storage.nbytes()
            # Two rows of a large table are cheaper to copy separately, unless a write must be seen by both.
            if not writes and size > 2 * sum(_bytes(_without_repetition(tensor)) for tensor in group):
                continue
            raw = _set_storage(_empty([0], dtype=torch.uint8, device=group[0].device), storage, 0, [size], [1])
            self._shared[key] = _copy_to(raw, device=CPU).untyped_storage()
            self.moved += size

    def leave(self, value: Any) -> Any:
        """A result for the caller: on the target."""
        if isinstance(value, RealTensor):
            if self.device is None or value.device.type == self.device.type or value.is_quantized or value.is_nested:
                return value  # a device that uses the CPU's kernels for quantized or nested tensors cannot hold one
            if value.layout is not torch.strided:
                there = move_sparse(value, self.device)
                self.moved += 0 if isinstance(there, CompressedTensor) else sparse_bytes(value)
                return there
            dtype = dtype_on(self.device.type, value.dtype)
            self.moved += _bytes(value)
            if dtype is value.dtype:
                return tensor_to(value, self.device)
            return _copy_to(_copy_to(value, dtype=dtype), device=self.device)
        if isinstance(value, (list, tuple)):
            return [self.leave(item) for item in value]
        return value

    def write_back(self, name: str, original: Any) -> None:
        """Copy the new contents of a written argument into the caller's tensor."""
        changed = self._copies.get(name)
        if changed is None:
            return
        if isinstance(original, RealTensor):
            self._write(original, changed)
        else:
            for one, its_copy in zip(original, changed, strict=True):
                if one is not None:
                    self._write(one, its_copy)

    def _write(self, original: torch.Tensor, changed: torch.Tensor) -> None:
        if original is changed or (isinstance(original, CompressedTensor) and original.was_written(changed)):
            return  # it was on the CPU from the start
        if original.layout is not torch.strided:
            copy = _copy_into_coo if original.layout is torch.sparse_coo else _copy_into
            copy(original, self.leave(changed))
            return
        if original.size() != changed.size():
            _resize(original, changed.size())
        self.moved += _bytes(changed)
        _copy_into(original, changed)


def run(plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any], target_type: str) -> tuple[Any, int]:
    """Run the operator on the CPU. Returns its results on the target, and the number of bytes copied."""
    if plan.samples:
        return _sampled(plan, args, kwargs, target_type)
    return _run(plan, args, kwargs, target_type)


def _sampled(plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any], target_type: str) -> tuple[Any, int]:
    """A sampler without a generator draws from its device's default one, so that device's seed and state apply."""
    named = dict(zip(plan.arguments, args, strict=False)) | kwargs
    device = _device_of(named.values(), target_type)
    if named.get(_GENERATOR) is not None or device is None:
        return _run(plan, args, kwargs, target_type)
    generator = dispatcher.cpu_generator_after(device)
    if _GENERATOR not in plan.arguments:
        with dispatcher.cpu_samples_by(generator):
            return _run(plan, args, kwargs, target_type)
    position = plan.arguments.index(_GENERATOR)
    if position < len(args):
        args = (*args[:position], generator, *args[position + 1 :])
    else:
        kwargs = {**kwargs, _GENERATOR: generator}
    return _run(plan, args, kwargs, target_type)


def _device_of(values: Iterable[Any], target_type: str) -> RealDevice | None:
    devices = (value if isinstance(value, RealDevice) else getattr(value, "device", None) for value in values)
    return next((device for device in devices if device is not None and device.type == target_type), None)


def _run(plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any], target_type: str) -> tuple[Any, int]:
    if plan.kind == FUNCTIONAL and not plan.recorded and not any(type(value) in (list, tuple) for value in args):
        return _run_functional(plan, args, kwargs, target_type)
    crossing = Crossing(target_type)
    named = dict(zip(plan.arguments, args, strict=False))
    named.update(kwargs)
    tensors = _tensors_of(named, plan)
    if len(tensors) > 1 and not plan.recorded:
        crossing.share(tensors, bool(plan.written))
    given = {name: crossing.enter(value, name, plan) for name, value in named.items()}
    results = plan.operator(*[given[name] for name in plan.arguments[: len(args)]], **{k: given[k] for k in kwargs})
    for name in (*plan.written, *plan.outs):
        if name in named:
            crossing.write_back(name, named[name])
    if plan.viewed is not None and not isinstance(named[plan.viewed], CompressedTensor):
        return _as_views(results, named[plan.viewed], given[plan.viewed]), crossing.moved
    if plan.single:
        source = plan.returned[0]
        return (crossing.leave(results) if source is None else named[source]), crossing.moved
    if not plan.returned:
        return None, crossing.moved
    returned = tuple(
        crossing.leave(result) if source is None else named[source]
        for source, result in zip(plan.returned, results, strict=True)
    )
    return returned, crossing.moved


def _run_functional(plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any], target_type: str) -> tuple[Any, int]:
    """A faster path for calls that write to no argument and have no lists, which are most calls."""
    crossing = Crossing(target_type)
    enter = crossing.enter
    tensors = [value for value in args if isinstance(value, RealTensor)]
    if len(tensors) > 1:
        crossing.share(tensors, writes=False)
    given = [enter(value, "", plan) for value in args]
    if any(tensor.layout is not torch.strided for tensor in tensors):
        given = [_with_requirement(copy, value) for copy, value in zip(given, args, strict=True)]
    results = plan.operator(*given, **{name: enter(value, name, plan) for name, value in kwargs.items()})
    if plan.single:
        return crossing.leave(results), crossing.moved
    return (tuple(map(crossing.leave, results)) if plan.returned else None), crossing.moved


def _with_requirement(copy: Any, value: Any) -> Any:
    """Kernels of sparse tensors read `requires_grad`: if set, they return extra results for the backward."""
    if isinstance(value, RealTensor) and value.requires_grad and not copy.requires_grad:
        return copy.detach().requires_grad_()
    return copy


def _tensors_of(named: dict[str, Any], plan: Plan) -> list[torch.Tensor]:
    found = []
    for name, value in named.items():
        if name in plan.outs:
            continue
        if isinstance(value, RealTensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found += [item for item in value if isinstance(item, RealTensor)]
    return found


def _storage_of(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage().data_ptr())


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _without_repetition(tensor: torch.Tensor) -> torch.Tensor:
    """The elements of an expanded tensor, each once."""
    if 0 not in tensor.stride():
        return tensor
    return tensor[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in tensor.stride())]


def _restrided(entered: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """The copy with the strides of the original: gaps stay gaps."""
    span = 1 + sum((size - 1) * stride for size, stride in zip(tensor.size(), tensor.stride(), strict=True))
    room = _empty_strided([span], [1], dtype=tensor.dtype, device=CPU)
    restrided = _as_strided(room, tensor.size(), tensor.stride())
    _copy_into(restrided, entered)
    return restrided


def _as_views(results: Any, base: torch.Tensor, moved_base: torch.Tensor) -> Any:
    """For results that are views of an argument: the same views of the caller's tensor."""
    shift = base.storage_offset() - moved_base.storage_offset()
    if isinstance(results, RealTensor):
        return _as_strided(base, results.size(), results.stride(), results.storage_offset() + shift)
    return [_as_views(result, base, moved_base) for result in results]


def sparse_bytes(tensor: torch.Tensor) -> int:
    """The size of a sparse tensor's parts in bytes."""
    return sum(_bytes(part) for part in _parts(tensor))


def _parts(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    aten = torch.ops.aten
    if tensor.layout is torch.sparse_coo:
        return aten._indices(tensor), aten._values(tensor)
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return aten.crow_indices(tensor), aten.col_indices(tensor), aten.values(tensor)
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return aten.ccol_indices(tensor), aten.row_indices(tensor), aten.values(tensor)
    return ()


def move_sparse(tensor: torch.Tensor, device: RealDevice) -> torch.Tensor:
    """A sparse tensor on another device, part by part: backends without sparse copies have dense ones."""
    if tensor.device.type == device.type:
        return tensor
    if tensor.layout in sparse.LAYOUTS and not sparse.made_for(device.type):
        # The copy must be recorded by autograd; the dispatcher calls our kernel for it.
        return _copy_to(tensor, device=device) if tensor.requires_grad else CompressedTensor(tensor, device)
    parts = _parts(tensor)
    if not parts:
        return _copy_to(tensor, device=device)
    moved = [_copy_to(part, device=device) for part in parts]
    if tensor.layout is not torch.sparse_coo:
        return torch.ops.aten._sparse_compressed_tensor_unsafe(
            *moved, tensor.size(), dtype=tensor.dtype, layout=tensor.layout, device=device
        )
    return torch.ops.aten._sparse_coo_tensor_with_dims_and_tensors(
        tensor.sparse_dim(),
        tensor.dense_dim(),
        tensor.size(),
        *moved,
        dtype=tensor.dtype,
        layout=torch.sparse_coo,
        device=device,
        is_coalesced=tensor.is_coalesced(),
    )
