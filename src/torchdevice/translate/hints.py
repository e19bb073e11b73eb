"""Hints for errors that a redirection may have caused: of the CPU, or of a type that the program checks."""

from __future__ import annotations

import linecache
import re
import traceback

from torchdevice.errors import TorchDeviceError, explain_error
from torchdevice.policy.hosts import is_accelerator
from torchdevice.policy.resolve import NOTHING
from torchdevice.translate.translator import Translator

_ABOUT_PLACES = re.compile(r"\b(devices?|dtypes?|ScalarType|cpu|cuda|mps|xpu|hpu|numpy|read-only)\b", re.IGNORECASE)
_ERRORS = (TypeError, RuntimeError, ValueError)
# A check of the device type in the lines that raised an error: `assert x.is_cuda`, `if x.device.type != "cuda":`.
_CHECK = r"""\bis_({0})\b|\btype\s*(==|!=|(not )?in)\s*[\[({{]*["']({0})"""
_LINES_OF_A_CHECK = 3


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


def checks_the_type(error: BaseException, translator: Translator) -> str:
    """The hint for an error of a program that checks for a device type which was redirected; empty for other errors."""
    redirected = {record.asked.partition(":")[0] for record in translator.ledger.totals()}
    asked = sorted(filter(is_accelerator, redirected - {translator.host.type}))
    frames = list(traceback.walk_tb(error.__traceback__))
    if not asked or not frames or isinstance(error, TorchDeviceError):
        return ""
    frame, line = frames[-1]
    source = [linecache.getline(frame.f_code.co_filename, line - back) for back in range(_LINES_OF_A_CHECK)]
    if not re.search(_CHECK.format("|".join(asked)), "".join(source)):
        return ""
    return explain_error(
        f"{type(error).__name__} ended the program, which checks the device type",
        f"tensors requested on {asked[0]} report their real type, {translator.host.type}",
        f"`torchdevice run --as {asked[0]}` gives tensors of the type {asked[0]}",
    )
