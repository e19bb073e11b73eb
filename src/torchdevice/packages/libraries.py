"""Checks of libraries that stand before an explicit request for a package: with a stand-in there, they say yes.

A library's own choice is made by other means (`importlib.util.find_spec`, `importlib.metadata`) or by other names, and
stays as it is. Nothing of a library is imported here.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any


@dataclass(frozen=True)
class Check:
    """Where a check is kept: the keys that lead to it from a module's names. `reason`: why only requests ask it.

    A function and a switch say yes; where the package itself is kept, `gives` is the module that is put there.
    """

    package: str
    module: str
    keys: tuple[Any, ...]
    reason: str
    gives: str = ""


_TRANSFORMERS = "transformers.modeling_flash_attention_utils"
_SWITCH = "asked by enable_xformers_memory_efficient_attention()"
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
    *(
        Check("xformers", f"diffusers.models.{module}", (name,), reason, gives)
        for module, name, reason, gives in (
            ("attention_processor", "is_xformers_available", _SWITCH, ""),
            ("attention_processor", "xformers", "called by the processors that this switches on", "xformers"),
            ("attention", "is_xformers_available", _SWITCH, ""),
            ("attention", "xops", "called where this tries it out", "xformers"),
            ("attention_dispatch", "_CAN_USE_XFORMERS_ATTN", 'asked by set_attention_backend("xformers")', ""),
            ("attention_dispatch", "xops", "called by this backend", "xformers.ops"),
        )
    ),
)


class _Later(ModuleType):
    """A stand-in that is imported when something of it is used."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(importlib.import_module(self.__name__), name)


def yes(*args: object, **kwargs: object) -> bool:
    """It can be had."""
    return True


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
    given: object = _Later(check.gives) if check.gives else yes if callable(before) else True
    place[last] = given

    def put_back() -> None:
        if place.get(last) is given:
            place[last] = before

    return put_back
