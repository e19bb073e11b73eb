"""Collectives on a virtual device: c10d's operators run on the CPU twins of its tensors, so gloo does the work.

`nccl` (on xpu: `xccl`) stays the name that programs ask for and read back; behind it stands gloo.
"""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

from torchdevice.virtual.patches import after_import

VENDOR = {"cuda": "NCCL", "xpu": "XCCL"}


def install(kind: str) -> None:
    def patch(module: ModuleType) -> None:
        _offer_vendor_backend(module, kind)
        _add_cpu(module.BackendConfig, kind)

    after_import("torch.distributed.distributed_c10d", patch)


def _offer_vendor_backend(module: ModuleType, kind: str) -> None:
    import torch.distributed

    name = VENDOR[kind]
    gloo = getattr(module, "ProcessGroupGloo", None)
    if gloo is None:
        return  # torch without gloo: nothing can stand in, and torch's own message says so

    class Options(SimpleNamespace):
        """ProcessGroupNCCL.Options: every field can be set, only the timeout matters."""

        def __init__(self, is_high_priority_stream: bool = False, **fields: Any) -> None:
            super().__init__(is_high_priority_stream=is_high_priority_stream, config=SimpleNamespace(), **fields)

    def start(self: Any, store: Any, rank: int, size: int, options: Any = None) -> None:
        timeout = getattr(options, "_timeout", None) or module.default_pg_timeout
        gloo.__init__(self, store, rank, size, timeout=timeout)

    body = {
        "__init__": start,
        "__module__": module.__name__,
        "Options": Options,
        "_group_start": lambda self: None,
        "_group_end": lambda self: None,
        "_shutdown": lambda self: None,
        "abort": lambda self: None,
        "perform_nocolor_split": lambda self, device: None,
    }
    backend = type(f"ProcessGroup{name}", (gloo,), body)

    def is_available() -> bool:
        return True

    is_available.__name__ = f"is_{name.lower()}_available"
    for place in (module, torch.distributed):
        vars(place).update({f"ProcessGroup{name}": backend, is_available.__name__: is_available})
    vars(module)[f"_{name}_AVAILABLE"] = True


def _add_cpu(config: Any, kind: str) -> None:
    """Our kernel for c10d's operators goes on to the CPU's, which asks the group for its CPU backend."""
    original = config.get_device_backend_map

    def get_device_backend_map(self: Any) -> dict[str, Any]:
        chosen = original(self)
        if kind in chosen and "cpu" not in chosen:
            return {"cpu": chosen[kind], **chosen}
        return dict(chosen)

    config.get_device_backend_map = get_device_backend_map
