"""`torch.accelerator` on a host without an accelerator: it behaves as on a machine with CUDA.

Each row names the function of `torch.cuda` that is called. On a host with an accelerator, `torch.accelerator` is not
replaced.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from typing import Any

import torch

from torchdevice._torch.core import RealDevice
from torchdevice.answers.audience import Audience
from torchdevice.answers.rows import Kind, Row
from torchdevice.translate.classes import stand_in
from torchdevice.translate.engine import Replacement

# Name in torch.accelerator: the function of torch.cuda that is called.
AS_CUDA = {
    "is_available": "is_available",
    "device_count": "device_count",
    "current_device_index": "current_device",
    "current_device_idx": "current_device",
    "set_device_index": "set_device",
    "set_device_idx": "set_device",
    "device_index": "device",
    "current_stream": "current_stream",
    "set_stream": "set_stream",
    "synchronize": "synchronize",
    "empty_cache": "empty_cache",
    "get_memory_info": "mem_get_info",
    "memory_stats": "memory_stats",
    "memory_allocated": "memory_allocated",
    "max_memory_allocated": "max_memory_allocated",
    "memory_reserved": "memory_reserved",
    "max_memory_reserved": "max_memory_reserved",
    "reset_accumulated_memory_stats": "reset_accumulated_memory_stats",
    "reset_peak_memory_stats": "reset_peak_memory_stats",
}
# These results decide which code runs. torch's compiler may treat them as constants of the graph.
CONSTANT = ("is_available", "current_accelerator", "device_count")


def _current_accelerator(check_available: bool = False) -> torch.device | None:
    return None if check_available and not torch.cuda.is_available() else RealDevice("cuda")


def _empty_host_cache() -> None:
    return None


ANSWERED_HERE = {
    "current_accelerator": _current_accelerator,
    "empty_host_cache": _empty_host_cache,
}
# The result of each function, as text, by path.
WORDS = {
    f"torch.accelerator.{name}": f"on a host without one as `torch.cuda.{other}`" for name, other in AS_CUDA.items()
} | {
    "torch.accelerator.current_accelerator": "`device(type='cuda')` on a host without one",
    "torch.accelerator.empty_host_cache": "does nothing on a host without one",
}


def replacements(cuda: Mapping[str, Any], audience: Audience) -> list[Replacement]:
    """The replacements for names of this torch. `cuda` holds those of torch.cuda. torch itself gets the originals."""
    answers = {name: cuda[other] for name, other in AS_CUDA.items()} | ANSWERED_HERE
    made = []
    for name, answer in answers.items():
        original = getattr(torch.accelerator, name, None)
        if original is None:
            continue
        path = f"torch.accelerator.{name}"
        if isinstance(original, type):
            value = _class(original, path, answer)
        else:
            row = Row(path, Kind.SIMULATED, WORDS[path], truth=True, constant=name in CONSTANT)
            value = audience.answering(row, path, original, answer)
        made.append(Replacement(path, torch.accelerator, name, value))
        home = sys.modules[original.__module__]  # pickle looks the name up there
        if home is not torch.accelerator:
            made.append(Replacement(f"{home.__name__}.{name}", home, name, value))
    return made


def _class(original: type, path: str, answer: Any) -> type:
    """A class with the same name and signature. Calling it returns an object of the replacement."""
    return stand_in(
        original, path, lambda args, kwargs: answer(*args, **kwargs), __signature__=inspect.signature(original)
    )
