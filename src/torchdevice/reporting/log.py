"""Logs records to the logger `torchdevice`.

Level INFO: each place once. Level DEBUG: also the settings with their sources, and what an activation replaced.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from torchdevice.config import Config
from torchdevice.ledger import Fallback, Redirect, Simulated, Site, StandIn
from torchdevice.printable import printable

logger = logging.getLogger("torchdevice")


def apply(config: Config) -> Callable[[], None]:
    """Set the configured level. If a level was given and logging is not set up, log to stderr. Returns the undo."""
    level_before, handler = logger.level, None
    logger.setLevel(config.log_level)
    if config.source("log_level") != "default" and not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        logger.addHandler(handler)

    def put_back() -> None:
        logger.setLevel(level_before)
        if handler is not None:
            logger.removeHandler(handler)

    return put_back


def activated(config: Config, target: str, replaced: int) -> None:
    """What is in force from now on."""
    for name, source in config.all_sources().items():
        logger.debug("%s = %s (%s)", name, getattr(config, name), source)
    logger.debug("requests for other devices go to %s; %d functions of torch are replaced", target, replaced)


def redirected(record: Redirect) -> None:
    """A request was redirected."""
    _say(record.site, f"{record.api}({record.asked}) → {record.given}: {record.reason}")


def answered(record: Simulated) -> None:
    """A call about a missing device was answered."""
    _say(record.site, f"{record.api} is {record.kind}, answered for {record.target}")


def stood_in(record: StandIn) -> None:
    """A stand-in of a missing package was called."""
    _say(record.site, f"{record.api} → {record.by}")


def fell_back(record: Fallback) -> None:
    """An operator fell back."""
    _say(record.site, f"{record.operator} ran on {record.executor}: {record.reason}")


def _say(site: Site, what: str) -> None:
    if logger.isEnabledFor(logging.INFO):
        logger.info("%s", printable(f"{site}: {what}"))
