"""Where instructions were executed: by library. Pure."""

from __future__ import annotations

import bisect
import os
from collections import Counter
from collections.abc import Iterable

OURS = "torchdevice"
UNKNOWN = "(other)"


def code_of(maps: Iterable[str]) -> list[tuple[int, int, str]]:
    """The ranges of addresses that contain code, by /proc/self/maps, with the name of their file."""
    found = []
    for line in maps:
        fields = line.split()
        if len(fields) > 5 and "x" in fields[1]:
            first, last = (int(each, 16) for each in fields[0].split("-"))
            name = os.path.basename(fields[5])
            found.append((first, last, OURS if name.startswith(OURS) else name))
    return sorted(found)


def by_library(counts: Iterable[str], code: list[tuple[int, int, str]]) -> Counter[str]:
    """The instructions per library, of lines "address instructions"."""
    starts = [first for first, _, _ in code]
    found: Counter[str] = Counter()
    for line in counts:
        address, instructions = line.split()
        at = int(address, 16)
        row = bisect.bisect(starts, at) - 1
        found[code[row][2] if row >= 0 and at < code[row][1] else UNKNOWN] += int(instructions)
    return found
