"""Warnings that a program can turn into errors, as many as TORCHDEVICE_LOG_LEVEL lets through.

Two things reach a user who did not ask. A `TorchDeviceWarning` says that a value is another one than on the hardware
that the code was written for, or that a setting was ignored: it comes from here. A message of the logger `torchdevice`
says how something was done: see `reporting.log`. One level governs both.
"""

from __future__ import annotations

import logging
import warnings

from torchdevice.environment import environment
from torchdevice.errors import TorchDeviceWarning

LOG_LEVEL = "TORCHDEVICE_LOG_LEVEL"
logger = logging.getLogger("torchdevice")


def warn(message: str, site: tuple[str, int] | None = None, level: int = logging.WARNING, stacklevel: int = 1) -> None:
    """A `TorchDeviceWarning` at `site` (file, line), else `stacklevel` frames above the caller.

    `level`: `logging.ERROR` for what could not be done, which only `logging.disable` silences.
    """
    if not is_wanted(level):
        return
    if site is None:
        warnings.warn(message, TorchDeviceWarning, stacklevel=stacklevel + 1)
    else:
        warnings.warn_explicit(message, TorchDeviceWarning, *site)


def is_wanted(level: int) -> bool:
    """Whether what is of this level is told. Before an activation sets the logger's level, the variable decides."""
    if not logger.isEnabledFor(level):
        return False
    asked = logging.getLevelName(environment().get(LOG_LEVEL, "").strip().upper())
    return bool(logger.level) or not isinstance(asked, int) or level >= asked  # a text: there is no such level
