"""Records calls whose meaning has changed, and warns once per place."""

from __future__ import annotations

import sys

from torchdevice.ledger import Changed
from torchdevice.notices import warn
from torchdevice.translate.callers import user_frame
from torchdevice.translate.translator import Translator


def tell(translator: Translator, path: str, asked: str, given: str, reason: str, message: str) -> None:
    """Count the place, and warn if it is new."""
    place = user_frame(sys._getframe(1), translator.roles)
    if translator.ledger.count(place, (path, asked, given), lambda site: Changed(path, asked, given, reason, site)):
        warn(message, (place.f_code.co_filename, place.f_lineno))
