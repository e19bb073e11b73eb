"""Availability checks of libraries that precede an explicit request for a package. With a stand-in they return True.

A library makes its default choice by other means (`importlib.util.find_spec`, `importlib.metadata`) or other names, and
that choice is not changed. This module imports no library.
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
    """The location of a check: the keys from a module's names. `reason`: why only explicit requests use it.

    A function is replaced by one that returns True, a flag by True. If the library stores the package itself, `gives`
    is the module that replaces it.
    """

    package: str
    module: str
    keys: tuple[Any, ...]
    reason: str
    gives: str = ""


_TRANSFORMERS = "transformers.modeling_flash_attention_utils"
_SWITCH = "called by enable_xformers_memory_efficient_attention()"
CHECKS = (
    Check(
        "flash_attn",
        _TRANSFORMERS,
        ("is_flash_attn_2_available",),
        'called when functions are loaded for attn_implementation="flash_attention_2"; the default is "sdpa"',
    ),
    Check(
        "flash_attn",
        _TRANSFORMERS,
        ("FLASH_ATTENTION_COMPATIBILITY_MATRIX", 2, "general_availability_check"),
        'checks whether attn_implementation="flash_attention_2" is available',
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
            ("attention_processor", "xformers", "called by the processors that this enables", "xformers"),
            ("attention", "is_xformers_available", _SWITCH, ""),
            ("attention", "xops", "called in the trial run of this method", "xformers"),
            ("attention_dispatch", "_CAN_USE_XFORMERS_ATTN", 'read by set_attention_backend("xformers")', ""),
            ("attention_dispatch", "xops", "called by this backend", "xformers.ops"),
        )
    ),
)


class _Later(ModuleType):
    """A stand-in that is imported on its first use."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(importlib.import_module(self.__name__), name)


def yes(*args: object, **kwargs: object) -> bool:
    """Always True: the package is available."""
    return True


def say_yes(check: Check) -> Callable[[], None] | None:
    """Replaces a check of a loaded module and returns the undo. None if this version of the library lacks the check."""
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
