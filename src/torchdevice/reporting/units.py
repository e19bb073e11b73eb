"""Figures with readable units."""

from __future__ import annotations


def took(seconds: float) -> str:
    """A time."""
    return f"{seconds:.1f} s" if seconds >= 10 else f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def size(number: float) -> str:
    """A number of bytes."""
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000 or unit == "GB":
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    raise AssertionError("the last unit takes everything")
