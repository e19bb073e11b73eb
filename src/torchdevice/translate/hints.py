"""The hint for an error about devices or dtypes that a redirection of the CPU may have caused."""

from __future__ import annotations

import re

from torchdevice.errors import explain_error
from torchdevice.policy.resolve import NOTHING
from torchdevice.translate.translator import Translator

_ABOUT_PLACES = re.compile(r"\b(devices?|dtypes?|ScalarType|cpu|cuda|mps|xpu|hpu|numpy|read-only)\b", re.IGNORECASE)
_ERRORS = (TypeError, RuntimeError, ValueError)


def moved_from_the_cpu(error: BaseException, translator: Translator) -> str:
    """The hint for an error that ends a program after requests for the CPU were redirected; empty for other errors."""
    if not isinstance(error, _ERRORS) or not _ABOUT_PLACES.search(str(error)):
        return ""
    moved = [record for record in translator.ledger.totals() if record.asked.startswith((str(NOTHING), "cpu"))]
    if not moved:
        return ""
    first = min(moved, key=lambda record: (record.site.file, record.site.line))
    return explain_error(
        f"{type(error).__name__} ended the program",
        f'policy={translator.situation.policy} moved tensors made on "cpu" or without a device to {first.given}, '
        f"first at {first.site}, and this may have caused the error",
        "try --policy portable (or TORCHDEVICE_POLICY=portable), which does not redirect the CPU",
    )
