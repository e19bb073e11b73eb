"""What one check found: its status, its words and its figures. Does not import torch.

A check returns a `Result`, or raises `Differs` or `Skipped`. The process that runs it turns these into a `Finding`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

AGREES, DIFFERS, SKIPPED, CRASHED, HUNG = "agrees", "differs", "skipped", "crashed", "hung"
STATUSES = (AGREES, DIFFERS, SKIPPED, CRASHED, HUNG)
BAD = (DIFFERS, CRASHED, HUNG)
# How the process of a check is set up: plain torch, TorchDevice active, or a virtual device on the accelerator.
PLAIN, TRANSLATED, AS = "plain", "translated", "as"
WAYS = (PLAIN, TRANSLATED, AS)
LONGEST = 300

Figures = dict[str, Any]


@dataclass(frozen=True)
class Result:
    """A check that ended as expected."""

    detail: str = ""
    figures: Figures = field(default_factory=dict)


class Differs(Exception):  # noqa: N818 - an answer, not a failure
    """The device does not do what was expected of it."""

    def __init__(self, detail: str, figures: Figures | None = None) -> None:
        super().__init__(detail)
        self.figures = figures or {}


class Skipped(Exception):  # noqa: N818
    """The check cannot be made here. The text is the reason."""


@dataclass(frozen=True)
class Check:
    """One question to the device, by a name that does not change between runs."""

    name: str
    run: Callable[[], Result | None]


@dataclass(frozen=True)
class Finding:
    """The answer to a check. `figures` are numbers and names for programs that read the file."""

    part: str
    way: str
    check: str
    status: str
    detail: str = ""
    figures: Figures = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str, str]:
        """What identifies the check."""
        return self.part, self.way, self.check

    @property
    def title(self) -> str:
        """The check with the way in which it ran, if that was not plain torch."""
        return self.check if self.way == PLAIN else f"{self.check} ({self.way})"


def perform(check: Check) -> tuple[str, str, Figures]:
    """Run a check: status, detail, figures."""
    try:
        result = check.run() or Result()
    except Skipped as reason:
        return SKIPPED, in_one_line(str(reason)), {}
    except Differs as found:
        return DIFFERS, in_one_line(str(found)), found.figures
    except Exception as error:  # an operator of a device can raise anything, and each check ends by itself
        return DIFFERS, in_one_line(f"raised {type(error).__name__}: {error}"), {}
    return AGREES, in_one_line(result.detail), result.figures


# Two names with separators before them: `/Users/me`, `C:\Users\me`. Links to issues of torch are kept.
_NAME = r"[\w.+@-]+"
_FOLDER = rf"{_NAME}(?: {_NAME})*(?=[/\\])"  # blanks only inside a path: what follows it is text
_PATH = re.compile(
    rf"(https?://\S+)|(?:[A-Za-z]:|~|\.{{1,2}})?(?:[/\\](?:{_FOLDER}|{_NAME})){{2,}}[/\\]?|~[/\\]{_NAME}"
)


def in_one_line(text: str) -> str:
    """The first line without paths, because the file is attached to public issues."""
    first = (text.strip().splitlines() or [""])[0]
    return _PATH.sub(lambda found: found[1] or "<path>", first)[:LONGEST]
