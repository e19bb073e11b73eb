"""Runs unmodified PyTorch code, written for one accelerator, on the device that this machine has, and reports changes.

Importing this package changes nothing. Its modules are loaded when a name is first used, because torch imports the
package through an entry point in every process. `__all__` lists the public API:

    import torchdevice
    torchdevice.activate()
    torch.zeros(2, device="cuda")        # on the accelerator of this machine, or on the CPU
    print(torchdevice.report())
    torchdevice.deactivate()             # restores every patched object of torch
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchdevice.errors import (
        AlreadyActive,
        CollectiveUnsupported,
        ConfigError,
        CudaExtensionRefused,
        CudaOnlyError,
        FallbackRefused,
        InterpreterUnsupported,
        TargetUnavailable,
        TorchDeviceError,
        TorchDeviceWarning,
        VirtualDeviceUnavailable,
    )
    from torchdevice.policy.resolve import Decision
    from torchdevice.reporting.collect import Report
    from torchdevice.session import (
        Status,
        activate,
        cpu_override,
        deactivate,
        explain,
        is_active,
        is_patched,
        original,
        redirect,
        report,
        status,
        suspended,
    )

__version__ = "0.1.0"

__all__ = [
    "AlreadyActive",
    "CollectiveUnsupported",
    "ConfigError",
    "CudaExtensionRefused",
    "CudaOnlyError",
    "Decision",
    "FallbackRefused",
    "InterpreterUnsupported",
    "Report",
    "Status",
    "TargetUnavailable",
    "TorchDeviceError",
    "TorchDeviceWarning",
    "VirtualDeviceUnavailable",
    "activate",
    "cpu_override",
    "deactivate",
    "explain",
    "is_active",
    "is_patched",
    "original",
    "redirect",
    "report",
    "status",
    "suspended",
]

# The module of each name, imported when the name is first used.
_HOMES = {
    "AlreadyActive": "errors",
    "CollectiveUnsupported": "errors",
    "ConfigError": "errors",
    "CudaExtensionRefused": "errors",
    "CudaOnlyError": "errors",
    "Decision": "policy.resolve",
    "FallbackRefused": "errors",
    "InterpreterUnsupported": "errors",
    "Report": "reporting.collect",
    "Status": "session",
    "TargetUnavailable": "errors",
    "TorchDeviceError": "errors",
    "TorchDeviceWarning": "errors",
    "VirtualDeviceUnavailable": "errors",
    "activate": "session",
    "cpu_override": "session",
    "deactivate": "session",
    "explain": "session",
    "is_active": "session",
    "is_patched": "session",
    "original": "session",
    "redirect": "session",
    "report": "session",
    "status": "session",
    "suspended": "session",
}

# Public modules. They are imported on first use.
_MODULES = ("fallback", "memory", "virtual")

# IPython looks these up on the package for `%load_ext torchdevice`. They are not public.
_EXTENSION = {"load_ipython_extension": "load", "unload_ipython_extension": "unload"}


def __getattr__(name: str) -> Any:
    if name in _EXTENSION:
        return getattr(importlib.import_module(f"{__name__}.notebook"), _EXTENSION[name])
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from torchdevice import process

    if home != "errors" and "torch" not in sys.modules:
        process.refuse_sub_interpreter()
    with process.collector_resting():
        value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


# If the environment asks for it, torch activates TorchDevice at the end of its own import. If one of our modules
# imported torch, that module would be only half imported then; so torch is imported here, before any of them.
_ASKS = ("TORCHDEVICE", "TORCHDEVICE_VIRTUAL", "TORCH_ALLOW_REDIRECTS")
if "torch" not in sys.modules and any(map(os.environ.get, _ASKS)):
    import torch  # noqa: F401
