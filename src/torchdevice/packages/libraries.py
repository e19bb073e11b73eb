"""Checks of libraries that stand before an explicit request for a package: with a stand-in there, they say yes.

A library's own choice is made by other means (`importlib.util.find_spec`, `importlib.metadata`) or by other names, and
stays as it is. Nothing of a library is imported here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Check:
    """Where a check is kept: the keys that lead to it from a module's names. `reason`: why only requests ask it."""

    package: str
    module: str
    keys: tuple[Any, ...]
    reason: str


_TRANSFORMERS = "transformers.modeling_flash_attention_utils"
CHECKS = (
    Check(
        "flash_attn",
        _TRANSFORMERS,
        ("is_flash_attn_2_available",),
        'asked while functions are loaded for attn_implementation="flash_attention_2"; the default is "sdpa"',
    ),
    Check(
        "flash_attn",
        _TRANSFORMERS,
        ("FLASH_ATTENTION_COMPATIBILITY_MATRIX", 2, "general_availability_check"),
        'asked whether attn_implementation="flash_attention_2" can be had',
    ),
    Check(
        "flash_attn",
        "transformers.modeling_utils",
        ("is_flash_attn_2_available",),
        "the same in transformers 4",
    ),
)


def say_yes(check: Check) -> Callable[[], None] | None:
    """Answer for a check of a module that is loaded; the undo. None where this version of the library has none."""
    place: MutableMapping[Any, Any] = vars(sys.modules[check.module])
    for key in check.keys[:-1]:
        if key not in place:
            return None
        place = place[key]
    last = check.keys[-1]
    if last not in place:
        return None
    before = place[last]

    def yes(*args: object, **kwargs: object) -> bool:
        return True

    place[last] = yes

    def put_back() -> None:
        if place.get(last) is yes:
            place[last] = before

    return put_back
