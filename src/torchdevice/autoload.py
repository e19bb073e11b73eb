"""Entry point of group `torch.backends`: torch calls `autoload` at the end of `import torch`, in every process.

It does nothing unless the environment asks for it: `TORCHDEVICE=1` and `TORCH_ALLOW_REDIRECTS=true` activate,
`TORCHDEVICE_VIRTUAL=mps` installs a virtual device first. An exception here would break `import torch`, so every error
becomes a warning. Only under `torchdevice run` does a setting that cannot work end the program.
"""

from __future__ import annotations

import logging
import os
import sys


def autoload() -> None:
    """Act on the environment; never raise."""
    allowed = os.environ.get("TORCH_ALLOW_REDIRECTS", "").strip().lower() == "true"
    if not (allowed or os.environ.get("TORCHDEVICE") or os.environ.get("TORCHDEVICE_VIRTUAL")):
        return
    from torchdevice.environment import environment

    if not environment():
        return
    supervision = None
    try:
        if any(map(environment().get, ("TORCHDEVICE_RUN", "TORCHDEVICE_REPORT", "TORCHDEVICE_PROFILE"))):
            from torchdevice import run_child

            supervision = run_child.from_environment()
        _act_on_environment()
        if supervision is not None:
            supervision.attach()
    except Exception as error:  # `import torch` must not fail
        if supervision is not None and supervision.must_work:
            supervision.give_up(error)
        from torchdevice.errors import TorchDeviceWarning
        from torchdevice.notices import warn

        try:
            warn(f"torchdevice is off in this process: {error}", level=logging.ERROR, stacklevel=2)
        except TorchDeviceWarning as warning:  # python -W error
            sys.stderr.write(f"{warning}\n")


def _act_on_environment() -> None:
    from torchdevice.config import asked_to_activate
    from torchdevice.environment import environment

    virtual = environment().get("TORCHDEVICE_VIRTUAL")
    if virtual:
        from torchdevice.virtual import from_environment

        from_environment(virtual)
    if asked_to_activate():
        from torchdevice.process import collector_resting

        with collector_resting():
            from torchdevice.session import session

            session.activate()
