"""Collectives on a virtual device: c10d's operators run on the CPU twins of its tensors, so gloo does the work.

`nccl` (on xpu: `xccl`) stays the name that programs ask for and read back; behind it stands gloo, with what
`torchdevice.distributed` adds to it.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from torchdevice._torch import builds
from torchdevice._torch.imports import when_imported

C10D = "torch.distributed.distributed_c10d"
VENDOR = {"cuda": "NCCL", "xpu": "XCCL"}
_kept: list[object] = []  # kernels end with the last reference to them; a virtual device stays


def install(kind: str) -> None:
    def patch() -> None:
        module = sys.modules[C10D]
        from torchdevice._torch import compilers
        from torchdevice._torch import distributed as private
        from torchdevice.distributed import collectives  # torch.distributed is loaded now

        _offer_vendor_backend(module, kind)
        _add_cpu(module.BackendConfig, kind)
        _fill_gaps(module)
        collectives.apply()
        # gloo gives a sparse tensor new indices, when it is done: its twin's are not the tensor's own any more.
        _kept.append(collectives.stage(kind, "Sparse"))
        compilers.when_dynamo_is_imported(lambda: private.leave_untraced("torchdevice.distributed"))

    when_imported(C10D, "", patch)


def _offer_vendor_backend(module: ModuleType, kind: str) -> None:
    import torch.distributed

    from torchdevice.distributed import backends

    name = VENDOR[kind]
    backend = backends.group_class(name)
    if backend is None:
        return  # torch without gloo: nothing can stand in, and torch's own message says so

    def is_available() -> bool:
        return True

    is_available.__name__ = f"is_{name.lower()}_available"
    for place in (module, torch.distributed):
        vars(place).update({f"ProcessGroup{name}": backend, is_available.__name__: is_available})
    vars(module)[f"_{name}_AVAILABLE"] = True
    # Asked for where torch is told to check collectives (TORCH_DISTRIBUTED_DEBUG=DETAIL) and has NCCL.
    builds.hash_tensors_with(_hash_tensors)


def _hash_tensors(tensors: list[Any]) -> int:
    return hash(tuple(bytes(tensor.cpu().contiguous().view(-1).tolist()) for tensor in tensors))


def _always() -> bool:
    return True


def _fill_gaps(module: ModuleType) -> None:
    import torch.distributed

    from torchdevice._torch import distributed as private
    from torchdevice.distributed import points

    for name in private.reductions():
        method = getattr(module.ProcessGroup, name)
        setattr(
            module.ProcessGroup, name, points.premultiplied(method, f"torch.distributed.ProcessGroup.{name}", _always)
        )
    for name, adapter in {"_coalescing_manager": points.coalescing, "split_group": points.splitting}.items():
        replacement = adapter(getattr(module, name), f"{module.__name__}.{name}", _always)
        for place in (module, torch.distributed):
            setattr(place, name, replacement)


def _add_cpu(config: Any, kind: str) -> None:
    """Our kernel for c10d's operators goes on to the CPU's, which asks the group for its CPU backend."""
    original = config.get_device_backend_map

    def get_device_backend_map(self: Any) -> dict[str, Any]:
        chosen = original(self)
        if kind in chosen and "cpu" not in chosen:
            return {"cpu": chosen[kind], **chosen}
        return dict(chosen)

    config.get_device_backend_map = get_device_backend_map
