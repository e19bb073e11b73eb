"""A call that means something else here than where its program was written: counted, and one warning per place."""

from __future__ import annotations

import sys
import warnings

from torchdevice.errors import TorchDeviceWarning
from torchdevice.ledger import Changed
from torchdevice.translate.callers import user_frame
from torchdevice.translate.translator import Translator


def tell(translator: Translator, path: str, asked: str, given: str, reason: str, message: str) -> None:
    """Count the place; if it is new, warn of it."""
    place = user_frame(sys._getframe(1), translator.roles)
    if translator.ledger.count(place, (path, asked, given), lambda site: Changed(path, asked, given, reason, site)):
        warnings.warn_explicit(message, TorchDeviceWarning, place.f_code.co_filename, place.f_lineno)
