"""What to add to an error about devices or dtypes that may come from a redirection of the CPU."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any

from torchdevice.errors import explain_error
from torchdevice.policy.resolve import NOTHING
from torchdevice.translate.translator import Translator

_ABOUT_PLACES = re.compile(r"\b(devices?|dtypes?|ScalarType|cpu|cuda|mps|xpu|hpu|numpy|read-only)\b", re.IGNORECASE)
Hook = Callable[[type[BaseException], BaseException, TracebackType | None], Any]
_ERRORS = (TypeError, RuntimeError, ValueError)


def moved_from_the_cpu(error: BaseException, translator: Translator) -> str:
    """The hint for an error that ends a program after tensors of the CPU were made elsewhere; empty for any other."""
    if not isinstance(error, _ERRORS) or not _ABOUT_PLACES.search(str(error)):
        return ""
    moved = [record for record in translator.ledger.totals() if record.asked.startswith((str(NOTHING), "cpu"))]
    if not moved:
        return ""
    first = min(moved, key=lambda record: (record.site.file, record.site.line))
    return explain_error(
        f"{type(error).__name__} ended the program",
        f'policy={translator.situation.policy} moved what was made on "cpu" or without a device to {first.given}, '
        f"first at {first.site}, and the error may come from that",
        "try --policy portable (or TORCHDEVICE_POLICY=portable), which leaves the CPU alone",
    )


def hinting_at_moves(show: Hook, translator: Translator) -> Hook:
    """A hook for exceptions that adds the hint to what `show` shows."""

    def excepthook(kind: type[BaseException], value: BaseException, tb: TracebackType | None) -> None:
        show(kind, value, tb)
        said = moved_from_the_cpu(value, translator)
        if said and sys.stderr is not None:
            sys.stderr.write(f"torchdevice: {said}\n")

    return excepthook
