"""What stands before torch's own distributed classes and functions: one adapter per shape.

Each takes the original, its path and the translator and returns the replacement, as the adapters of `patching` do.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from torchdevice import compat_distributed as private
from torchdevice.compat import RealDevice
from torchdevice.patching.adapters import dress
from torchdevice.patching.translator import Translator

Function = Callable[..., Any]

# Devices without numbers of their own: DistributedDataParallel wants none named there.
UNNUMBERED = frozenset({"cpu", "mps"})


def data_parallel_init(original: Function, path: str, translator: Translator) -> Function:
    """`DistributedDataParallel(device_ids=[rank], output_device=rank)`: the module is where it is."""
    signature = inspect.signature(original)

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        if translator.in_force:
            given = signature.bind(self, *args, **kwargs)
            count = translator.host.count
            if translator.host.type in UNNUMBERED:
                given.arguments.pop("device_ids", None)
                given.arguments.pop("output_device", None)
            else:
                _fold(given.arguments, "device_ids", lambda ids: [_folded(each, count) for each in ids])
                _fold(given.arguments, "output_device", lambda each: _folded(each, count))
            args, kwargs = given.args[1:], given.kwargs
        original(self, *args, **kwargs)

    return dress(__init__, original, path)


def _fold(arguments: dict[str, Any], name: str, change: Callable[[Any], Any]) -> None:
    if arguments.get(name) is not None:
        arguments[name] = change(arguments[name])


def _folded(asked: Any, count: int) -> Any:
    """A number that the host does not have is folded; devices were translated when they were made."""
    return asked % count if isinstance(asked, int) else asked


def sharded_init(original: Function, path: str, translator: Translator) -> Function:
    """`FullyShardedDataParallel(device_id=local_rank)`: on a device without numbers, that device and no other."""
    signature = inspect.signature(original)

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        given = signature.bind(self, *args, **kwargs)
        if translator.in_force and translator.host.type in UNNUMBERED:
            given.arguments["device_id"] = RealDevice(translator.host.type)
        original(*given.args, **given.kwargs)

    return dress(__init__, original, path)


def with_device_ids(original: Function, path: str, translator: Translator) -> Function:
    """`barrier(device_ids=[local_rank])`: numbers that are not here are folded, or left out where there are none."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("device_ids") is not None and translator.in_force:
            if translator.host.type in UNNUMBERED:
                del kwargs["device_ids"]
            else:
                kwargs["device_ids"] = [_folded(each, translator.host.count) for each in kwargs["device_ids"]]
        return original(*args, **kwargs)

    return dress(call, original, path)


def comm_hook(original: Function, path: str, translator: Translator) -> Function:
    """`register_comm_hook`: torch refuses hooks in bfloat16, by their names, where there is no NCCL; gloo has it."""

    def register_comm_hook(self: Any, state: object, hook: Function) -> Any:
        if translator.in_force and getattr(hook, "__name__", "").startswith("bf16_compress"):
            inner = hook

            def hook(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
                return inner(state, bucket)

            hook.__annotations__ = dict(getattr(inner, "__annotations__", {}))
            hook.__name__, hook.__doc__ = f"through_{inner.__name__}", inner.__doc__
        return original(self, state, hook)

    return dress(register_comm_hook, original, path)


def batch_norm_forward(original: Function, path: str, translator: Translator) -> Function:
    """`SyncBatchNorm.forward`: torch's own code, for the host's device too."""
    here = private.under_another_backend_name(original, lambda: translator.host.type)

    def forward(self: Any, input: torch.Tensor) -> torch.Tensor:
        if translator.in_force and input.device.type == translator.host.type:
            return here(self, input)
        return original(self, input)

    return dress(forward, original, path)


def unneeded(original: Function, path: str, translator: Translator) -> Function:
    """A check of torch for something that works here."""

    def check(self: Any, *args: Any) -> Any:
        return None if translator.in_force else original(self, *args)

    return dress(check, original, path)


def naming_rank(original: Function, path: str, translator: Translator) -> Function:
    """`Work.wait`: an error of the transport says which process met it."""

    def wait(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(self, *args, **kwargs)
        except RuntimeError as error:
            if not translator.in_force or not dist.is_initialized() or str(error).startswith("[rank"):
                raise
            place = f"[rank {dist.get_rank()} of {dist.get_world_size()}]"
            raise type(error)(f"{place} {error}") from error

    return dress(wait, original, path)


def counting_for_launcher(
    original: Function, path: str, translator: Translator, devices: Callable[[], int]
) -> Function:
    """torchrun's `--nproc-per-node=auto` counts processors where there is no accelerator: the devices it is told of."""

    def cpu_count() -> Any:
        frame = inspect.currentframe()
        asker = frame.f_back if frame is not None else None
        auto = asker is not None and asker.f_locals.get("nproc_per_node") == "auto"
        return devices() if auto and translator.in_force else original()

    return dress(cpu_count, original, path)
