"""Python warnings of TorchDevice. `TORCHDEVICE_LOG_LEVEL` filters them.

By default a user sees two kinds of messages. A `TorchDeviceWarning` reports that a value differs from its value on the
hardware that the code was written for, or that a setting was ignored. This module issues it, and a program can turn it
into an error. A message of the logger `torchdevice` reports how a call was handled: see `reporting.log`. The same level
filters both.
"""

from __future__ import annotations

import logging
import warnings

from torchdevice.environment import environment
from torchdevice.errors import TorchDeviceWarning

LOG_LEVEL = "TORCHDEVICE_LOG_LEVEL"
logger = logging.getLogger("torchdevice")


def warn(message: str, site: tuple[str, int] | None = None, level: int = logging.WARNING, stacklevel: int = 1) -> None:
    """Issues a `TorchDeviceWarning` for `site` (file, line), else for the frame `stacklevel` frames above the caller.

    `level` is `logging.ERROR` if something could not be done. Only `logging.disable` suppresses that.
    """
    if not is_wanted(level):
        return
    if site is None:
        warnings.warn(message, TorchDeviceWarning, stacklevel=stacklevel + 1)
    else:
        warnings.warn_explicit(message, TorchDeviceWarning, *site)


def is_wanted(level: int) -> bool:
    """Whether messages of this level are shown. Before an activation sets the logger's level, the variable decides."""
    if not logger.isEnabledFor(level):
        return False
    asked = logging.getLevelName(environment().get(LOG_LEVEL, "").strip().upper())
    return bool(logger.level) or not isinstance(asked, int) or level >= asked  # text means an unknown level
