"""Adapters for saving checkpoints: the device that a file records for its tensors.

If requests for the CPU are redirected, a tensor on the target may be a CPU tensor of the program (`v.cpu()` stayed
there). The file records `cpu`, so that plain torch can read it on any machine. A session loads such a tensor to the
target again.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from torchdevice._torch.core import RealDevice
from torchdevice.policy.resolve import Caller
from torchdevice.translate.engine import Function, dress
from torchdevice.translate.translator import Translator

# Set while user code saves. torch's own pickles (queues, collectives) keep the device that they record.
_standing_for_cpu: ContextVar[RealDevice | None] = ContextVar("torchdevice_standing_for_cpu", default=None)


def save(original: Function, path: str, translator: Translator) -> Function:
    """`torch.save` and `PackageExporter.save_pickle`."""

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
    """`torch.serialization.location_tag`: the device that a file records for a storage."""

    def tag(storage: Any) -> Any:
        standing = _standing_for_cpu.get()
        return "cpu" if standing is not None and storage.device == standing else original(storage)

    return dress(tag, original, path)
