"""Adapters for checkpoints that go out: what they say of where their tensors were.

A tensor on the device that stands for the CPU may be the program's CPU tensor (`v.cpu()` stayed there): the file says
`cpu`, so that plain torch reads it on any machine. A session reads such a file back to where the tensor was.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from torchdevice._torch.core import RealDevice
from torchdevice.policy.resolve import Caller
from torchdevice.translate.engine import Function, dress
from torchdevice.translate.translator import Translator

# While user code saves. torch's own pickles (queues, collectives) come back to the device that they name.
_standing_for_cpu: ContextVar[RealDevice | None] = ContextVar("torchdevice_standing_for_cpu", default=None)


def save(original: Function, path: str, translator: Translator) -> Function:
    """`torch.save` and its kin."""

    def save_portably(*args: Any, **kwargs: Any) -> Any:
        if translator.caller() is not Caller.USER:
            return original(*args, **kwargs)
        token = _standing_for_cpu.set(translator.standing_for_cpu())
        try:
            return original(*args, **kwargs)
        finally:
            _standing_for_cpu.reset(token)

    return dress(save_portably, original, path)


def location_tag(original: Function, path: str, translator: Translator) -> Function:
    """`torch.serialization.location_tag`: what a file says of a storage."""

    def tag(storage: Any) -> Any:
        standing = _standing_for_cpu.get()
        return "cpu" if standing is not None and storage.device == standing else original(storage)

    return dress(tag, original, path)
