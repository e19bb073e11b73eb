"""Random numbers: the namespace's generators are the default generators of the device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from torchdevice._torch.core import RealDevice
from torchdevice.answers.device import Device, Table
from torchdevice.answers.devices import index_reader

# The state of a CUDA generator: seed and offset, eight bytes each.
CUDA_STATE_BYTES = 16


class LaterGenerators(tuple[torch.Generator, ...]):
    """The generators of devices that are not initialized yet. Reading one initializes the device."""

    _device: Device

    def __new__(cls, device: Device) -> LaterGenerators:
        made = super().__new__(cls)
        made._device = device
        return made

    def __len__(self) -> int:
        return self._device.count

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
        return tuple(self._device.generator(number) for number in range(self._device.count))


def generators(device: Device) -> tuple[torch.Generator, ...]:
    """`default_generators`: one per device."""
    later = LaterGenerators(device)
    return tuple(later) if device.initialised() else later


def random_names(kind: str, device: Device) -> Table:
    """Names in the namespace's modules for random numbers. Seeding takes effect immediately."""
    return {
        "default_generators": generators(device),
        "_lazy_call": calling_now(device),
        "set_rng_state": _set_rng_state(kind, device),
    }


def calling_now(device: Device) -> Callable[..., None]:
    """CUDA calls the function at the first use of the device, so this call does not count as a use."""

    def call_now(callback: Callable[[], None], **_: Any) -> None:
        begun = device.begun
        callback()
        device.begun = begun

    return call_now


def _set_rng_state(kind: str, device: Device) -> Callable[..., None]:
    read_index = index_reader(device)
    answering = device

    def set_rng_state(new_state: Any, device: Any = kind) -> None:
        generator = answering.generator(read_index(device, optional=True))
        state = new_state.to(RealDevice("cpu"))
        if state.numel() == CUDA_STATE_BYTES != generator.get_state().numel():
            # The state comes from a CUDA machine. Its generator is a different one, but the seed can be used.
            generator.manual_seed(int.from_bytes(bytes(state[:8].tolist()), "little"))
        else:
            generator.set_state(state)

    return set_rng_state
