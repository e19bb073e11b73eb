"""Text of others as a terminal and a CI log may show it: names of files and lines of code can hold commands to both."""

from __future__ import annotations

import re

# What GitHub, Azure and TeamCity take for a command in a log: `::error::…` after blanks, `##[…]`, `##vso[…]` anywhere.
_COMMANDS = re.compile(r"^\s*:(?=:)|#(?=#\w*\[)")


def printable(text: str) -> str:
    """One line: whatever is no printable character becomes its escape, and no log finds a command in it."""
    if not text.isprintable():
        text = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
    return _COMMANDS.sub(lambda found: f"{found[0][:-1]}\\x{ord(found[0][-1]):02x}", text)


def printable_lines(text: str) -> str:
    """The same for a text whose line breaks are meant."""
    return "\n".join(map(printable, text.split("\n")))
