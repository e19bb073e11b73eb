"""Logs records to the logger `torchdevice`.

- ERROR: an operator that could not run anywhere.
- WARNING: the first redirection of a process; each place that uses something that works differently from CUDA; the
  first time that an operator falls back; each place at which the target was full. Changed values are Python warnings:
  see `notices`.
- INFO: each place once.
- DEBUG: also the settings with their sources, and what an activation replaced.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from torchdevice.config import Config
from torchdevice.ledger import REFUSED, Fallback, Redirect, Shortage, Simulated, Site, StandIn
from torchdevice.notices import logger
from torchdevice.printable import printable

HOW_TO_SEE = "this is the first redirection; TORCHDEVICE_LOG_LEVEL=INFO shows every place, ERROR none"


def apply(config: Config) -> Callable[[], None]:
    """Set the configured level. Log to stderr unless the program sets up logging. Returns the undo."""
    level_before = logger.level
    if config.source("log_level") != "default" or not level_before:
        logger.setLevel(config.log_level)
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
    handler.addFilter(lambda _: _is_the_only_one(handler))
    logger.addHandler(handler)

    def put_back() -> None:
        logger.setLevel(level_before)
        logger.removeHandler(handler)

    return put_back


def _is_the_only_one(handler: logging.Handler) -> bool:
    """Whether nobody else would show a message: programs set up logging before an activation or after it."""
    return logger.handlers == [handler] and not (logger.propagate and logging.getLogger().handlers)


def first_redirected(record: Redirect) -> None:
    """The first redirection of a process, for those who did not ask; at INFO every place is shown."""
    if not logger.isEnabledFor(logging.INFO):
        _say(record.site, f"{_redirection(record)}; {HOW_TO_SEE}", logging.WARNING)


def activated(config: Config, target: str, replaced: int) -> None:
    """What is in force from now on."""
    for name, source in config.all_sources().items():
        logger.debug("%s = %s (%s)", name, getattr(config, name), source)
    logger.debug("requests for other devices go to %s; %d functions of torch are replaced", target, replaced)


def redirected(record: Redirect) -> None:
    """A request was redirected."""
    _say(record.site, _redirection(record))


def _redirection(record: Redirect) -> str:
    return f"{record.api}({record.asked}) → {record.given}: {record.reason}"


def answered(record: Simulated) -> None:
    """A call about a missing device was answered."""
    told = f"{record.api} is {record.kind}, answered for {record.target}"
    if record.loss:
        _say(record.site, f"{told}: {record.loss}", logging.WARNING)
    else:
        _say(record.site, told)


def stood_in(record: StandIn) -> None:
    """A stand-in of a missing package was called."""
    _say(record.site, f"{record.api} → {record.by}")


def relieved(record: Shortage) -> None:
    """The target was full, and memory was freed."""
    _say(record.site, f"{record.api}: {record.target} was full; {record.given}", logging.WARNING)


class Fallbacks:
    """Logs operators that fell back. The first place of each operator is a warning."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def fell_back(self, record: Fallback) -> None:
        """An operator fell back, or could not run anywhere."""
        if record.executor == REFUSED:
            _say(record.site, f"{record.operator} was refused: {record.reason}", logging.ERROR)
            return
        is_new = record.operator not in self._known
        self._known.add(record.operator)
        told = f"{record.operator} ran on {record.executor}: {record.reason}"
        _say(record.site, told, logging.WARNING if is_new else logging.INFO)


def _say(site: Site, what: str, level: int = logging.INFO) -> None:
    if logger.isEnabledFor(level):
        logger.log(level, "%s", printable(f"{site}: {what}"))
