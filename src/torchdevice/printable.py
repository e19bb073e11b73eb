"""Escapes untrusted text for terminals and CI logs: file names and source lines can contain control sequences."""

from __future__ import annotations

import re

# Commands that GitHub, Azure and TeamCity read from a log: `::error::…` after blanks, `##[…]`, `##vso[…]` anywhere.
_COMMANDS = re.compile(r"^\s*:(?=:)|#(?=#\w*\[)")


def printable(text: str) -> str:
    """One line in which unprintable characters and log commands are escaped."""
    if not text.isprintable():
        text = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
    return _COMMANDS.sub(lambda found: f"{found[0][:-1]}\\x{ord(found[0][-1]):02x}", text)


def printable_lines(text: str) -> str:
    """The same for a text with line breaks, which are kept."""
    return "\n".join(map(printable, text.split("\n")))
