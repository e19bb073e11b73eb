"""Run PyTorch code written for one accelerator on the one that is there, unedited, and see what was changed.

Importing this package changes nothing, and loads nothing until a name is used: torch imports it through an entry
point in every process, also where nobody needs it. The public API is what `__all__` lists:

    import torchdevice
    torchdevice.activate()
    torch.zeros(2, device="cuda")        # on the accelerator that is there, or on the CPU
    print(torchdevice.report())
    torchdevice.deactivate()             # every object of torch is back, by identity
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

# The module of each, which is imported when the name is first used.
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

# Modules with names for users, which are imported when they are first used.
_MODULES = ("fallback", "memory", "virtual")

# IPython looks these up on the package for `%load_ext torchdevice`; they are no names for users.
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


# Where the environment asks for us, torch starts us at the end of its own import, through our entry point. Imported
# from one of our modules it would find that module half imported; so it is imported here, before any of them.
_ASKS = ("TORCHDEVICE", "TORCHDEVICE_VIRTUAL", "TORCH_ALLOW_REDIRECTS")
if "torch" not in sys.modules and any(map(os.environ.get, _ASKS)):
    import torch  # noqa: F401
