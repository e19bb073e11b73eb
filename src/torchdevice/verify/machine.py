"""The machine and the device of a run, as facts. No user name, no host name, no paths."""

from __future__ import annotations

import os
import platform
from typing import Any

import torch

from torchdevice import __version__
from torchdevice._torch import core
from torchdevice.policy.hosts import this_host
from torchdevice.verify.setting import Setting

GIB = 1 << 30


def describe(setting: Setting) -> dict[str, Any]:
    """What results depend on."""
    return {
        "torchdevice": __version__,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "system": _system(),
        "architecture": platform.machine(),
        "cores": os.cpu_count() or 0,
        "memory_gib": _memory(),
        "device": setting.kind,
        "device_name": _device_name(setting),
        "device_count": this_host().count,
        "virtual": setting.virtual,
    }


def _system() -> str:
    mac = platform.mac_ver()[0]
    return f"macOS {mac}" if mac else f"{platform.system()} {platform.release()}"


def _memory() -> float:
    import psutil

    return round(float(psutil.virtual_memory().total) / GIB, 1)


def _device_name(setting: Setting) -> str:
    if setting.virtual or setting.kind == "cpu":
        return f"virtual {setting.kind}" if setting.virtual else "none"
    if setting.kind == "mps":
        return core.mps_name() or "MPS"
    get_name = getattr(torch.get_device_module(setting.kind), "get_device_name", None)
    return str(get_name()) if get_name is not None else setting.kind
