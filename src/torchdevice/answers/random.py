"""Random numbers: the namespace's generators are the target's default generators, seeded and restored through them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from torchdevice._torch.core import RealDevice
from torchdevice.answers.devices import Table, index_reader
from torchdevice.answers.real import Target

# A CUDA generator's state: the seed and the offset, eight bytes each.
CUDA_STATE_BYTES = 16


class LaterGenerators(tuple[torch.Generator, ...]):
    """The generators of devices that nothing has touched yet: asked for one, they are initialised, and not before."""

    _target: Target

    def __new__(cls, target: Target) -> LaterGenerators:
        made = super().__new__(cls)
        made._target = target
        return made

    def __len__(self) -> int:
        return self._target.count

    def __iter__(self) -> Iterator[torch.Generator]:
        return iter(self._now())

    def __getitem__(self, index: Any) -> Any:
        return self._now()[index]

    def __contains__(self, each: object) -> bool:
        return each in self._now()

    def __eq__(self, other: object) -> bool:
        return self._now() == (other._now() if isinstance(other, LaterGenerators) else other)

    def __hash__(self) -> int:
        return hash(self._now())

    def __add__(self, other: Any) -> Any:
        return self._now() + other

    def __repr__(self) -> str:
        return repr(self._now())

    def _now(self) -> tuple[torch.Generator, ...]:
        return tuple(self._target.generator(number) for number in range(self._target.count))


def generators(target: Target) -> tuple[torch.Generator, ...]:
    """`default_generators`: one per device."""
    later = LaterGenerators(target)
    return tuple(later) if target.initialised() else later


def random_globals(kind: str, target: Target) -> Table:
    """Names of the namespace's modules that say where random numbers come from, and when seeding happens: at once."""
    return {
        "default_generators": generators(target),
        "_lazy_call": _call_now,
        "set_rng_state": _set_rng_state(kind, target),
    }


def _call_now(callback: Callable[[], None], **_: Any) -> None:
    callback()


def _set_rng_state(kind: str, target: Target) -> Callable[..., None]:
    read_index = index_reader(target)

    def set_rng_state(new_state: Any, device: Any = kind) -> None:
        generator = target.generator(read_index(device, optional=True))
        state = new_state.to(RealDevice("cpu"))
        if state.numel() == CUDA_STATE_BYTES != generator.get_state().numel():
            # A checkpoint from a CUDA machine: its generator is another one, but the seed can be taken over.
            generator.manual_seed(int.from_bytes(bytes(state[:8].tolist()), "little"))
        else:
            generator.set_state(state)

    return set_rng_state
