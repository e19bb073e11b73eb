"""Random operators on DTensors, for generators that have no offset: those of the CPU and of MPS.

torch lets every shard draw from another offset of the same sequence, which only the generators of CUDA and XPU support.
Here every shard has a seed of its own. It is made from a number that all ranks draw from the program's generator, so
the generators of all ranks stay equal, and copies of a shard hold the same numbers. A DTensor that is not sharded draws
from the generator itself, as a tensor does.

Expiry: a tracker in torch for every generator.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import hashlib
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist

from torchdevice._torch.imports import when_imported

RANDOM = "torch.distributed.tensor._random"
OPERATORS = "torch._prims.rng_prims"
COMPUTE_OFFSETS = "_compute_rng_offsets"  # a method; torch 2.9 has none
SEED_AND_OFFSET = 16  # bytes of such a state


def apply() -> Callable[[], None]:
    """Patch torch's tracker when it is imported. Returns the undo. Calls may be nested."""
    _Engaged.wanted += 1
    if _Engaged.undo is None:
        _Engaged.undo = contextlib.ExitStack()
        _Engaged.undo.callback(when_imported(RANDOM, "_resolve_device", _patch_tracker))
        _Engaged.undo.callback(when_imported(OPERATORS, "register_rng_prims", _patch_operator))
    return _disengage


class _Engaged:
    wanted = 0
    undo: contextlib.ExitStack | None = None


def _disengage() -> None:
    _Engaged.wanted -= 1
    if not _Engaged.wanted and _Engaged.undo is not None:
        _Engaged.undo.close()
        _Engaged.undo = None


def _patch_tracker() -> Callable[[], None]:
    import torch.distributed.tensor._random as module

    tracker = module.OffsetBasedRNGTracker
    before = {
        name: vars(tracker)[name]
        for name in ("__init__", "_distribute_region", COMPUTE_OFFSETS)
        if name in vars(tracker)
    }
    tracker.__init__ = _starting(module, tracker, before["__init__"])
    tracker._distribute_region = _region(before["_distribute_region"])
    if COMPUTE_OFFSETS in before:
        setattr(tracker, COMPUTE_OFFSETS, _offsets_for_operator(before[COMPUTE_OFFSETS]))

    def undo() -> None:
        for name, value in before.items():
            setattr(tracker, name, value)
        # torch refuses a tracker for the CPU, so this one is ours. Without us torch would call its own methods on it.
        if getattr(module._rng_tracker, "_device", None) == torch.device("cpu", 0):
            module._rng_tracker = None

    return undo


def _starting(module: ModuleType, tracker: Any, original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def __init__(self: Any, device_mesh: Any, run_state_sync: bool = True) -> None:  # noqa: N807
        if device_mesh.device_type != "cpu":
            original(self, device_mesh, run_state_sync)
            return
        super(tracker, self).__init__(module._resolve_device(device_mesh))
        if run_state_sync:
            state = self._get_device_state()
            dist.broadcast(state, 0)
            self._set_device_state(state)

    return __init__


def _region(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def _distribute_region(self: Any, spec: Any, generator: torch.Generator | None = None) -> Any:
        if _has_offset(self._device_handle):
            return original(self, spec, generator)
        if not self.distribute_region_enabled:
            return contextlib.nullcontext()
        part = _Offset()
        self._set_pre_op_offset(part, _in_fours(spec))
        sharded = spec.num_shards > 1
        return _drawing(self._device_handle, self._device.type, generator, int(part.offset) if sharded else None)

    return _distribute_region


def _in_fours(spec: Any) -> Any:
    """Every element taken four times. torch rounds the beginning of a shard up to a multiple of four, so that shards of
    fewer elements would begin at the same place and draw the same numbers.
    """
    spec = copy.copy(spec)  # not `dataclasses.replace`, which refuses a `_StridedShard` in torch 2.13
    spec.tensor_meta = spec.tensor_meta._replace(shape=torch.Size((*spec.shape, 4)))
    return spec


class _Offset:
    """What torch adds to the offset of a generator for the shard of this rank."""

    offset = 0


def _patch_operator() -> Callable[[], None] | None:
    """In torch 2.13 and later, CUDA tensors draw in an operator, which compiled programs contain, not in a region.

    In torch 2.15 and later, tensors of the other accelerators do so too.
    """
    import torch._prims.rng_prims as module

    operator: Any = getattr(module, "run_dtensor_rng_op", None)
    if operator is None:
        return None
    keys = torch._C.DispatchKey
    before = {
        key: operator.py_kernels[key] for key in (keys.CUDA, keys.XPU, keys.BackendSelect) if key in operator.py_kernels
    }

    def kernel(start: int, end: int, drawing: Any, first: Any, *others: Any, **options: Any) -> Any:
        kind = first.device.type
        namespace = torch.get_device_module(kind)
        if kind == "cpu" or _has_offset(namespace):
            return before[keys.BackendSelect](start, end, drawing, first, *others, **options)
        with _drawing(namespace, kind, None, start if end == _SHARDED else None):
            return drawing(first, *others, **options)

    def put(kernels: dict[Any, Any]) -> None:
        operator.py_kernels.update(kernels)
        operator._dispatch_cache.clear()

    put(dict.fromkeys(before, kernel))
    return functools.partial(put, before)


def _offsets_for_operator(original: Callable[..., Any]) -> Callable[..., Any]:
    """What the tracker passes to the operator: where the shard begins, and where the whole tensor ends.

    The kernel above needs no end, but must know whether the tensor is sharded. It cannot see that in its arguments: one
    rank may have all elements.
    """

    @functools.wraps(original)
    def _compute_rng_offsets(self: Any, spec: Any) -> Any:
        if _has_offset(self._device_handle) or spec.num_shards == 1:
            return original(self, spec)
        return original(self, _in_fours(spec))[0], _SHARDED

    return _compute_rng_offsets


_SHARDED = -1


def _has_offset(namespace: Any) -> bool:
    return bool(namespace.get_rng_state().numel() == SEED_AND_OFFSET)


def _drawing(
    namespace: Any, kind: str, generator: torch.Generator | None, shard: int | None
) -> contextlib.AbstractContextManager[None]:
    """Code that draws from the default generator of the current device gets the numbers of this shard.

    shard: where it begins in the whole tensor; None if the tensor is not sharded.
    """
    if shard is not None:
        return _for_shard(namespace, kind, generator, shard)
    return contextlib.nullcontext() if generator is None else _from_generator(namespace, generator)


@contextlib.contextmanager
def _for_shard(namespace: Any, kind: str, generator: torch.Generator | None, shard: int) -> Iterator[None]:
    device = torch.device(kind) if generator is None else generator.device
    tensor = torch.empty((), dtype=torch.int64, device=device).random_(generator=generator)
    if type(tensor) is not torch.Tensor:  # a compiler reads the program: tensors hold no numbers
        yield
        return
    drawn = _number_in(tensor, namespace)
    before = namespace.get_rng_state()
    namespace.set_rng_state(torch.Generator(kind).manual_seed(_seed(drawn, shard)).get_state())
    try:
        yield
    finally:
        namespace.set_rng_state(before)


def _number_in(tensor: torch.Tensor, namespace: Any) -> int:
    """torch does not wait for the device here, so a program may forbid to wait."""
    if not hasattr(namespace, "set_sync_debug_mode"):
        return int(tensor)
    mode = namespace.get_sync_debug_mode()
    namespace.set_sync_debug_mode(0)
    try:
        return int(tensor)
    finally:
        namespace.set_sync_debug_mode(mode)


@contextlib.contextmanager
def _from_generator(namespace: Any, generator: torch.Generator) -> Iterator[None]:
    before = namespace.get_rng_state()
    namespace.set_rng_state(generator.get_state())
    try:
        yield
    finally:
        generator.set_state(namespace.get_rng_state())
        namespace.set_rng_state(before)


def _seed(drawn: int, shard: int) -> int:
    """A seed whose lower half differs too: the CPU's generator uses no more."""
    digest = hashlib.blake2b(f"{drawn} {shard}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
