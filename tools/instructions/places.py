"""Where instructions were executed: by library, and in how much code. Pure."""

from __future__ import annotations

import bisect
import os
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

OURS = "torchdevice"
UNKNOWN = "(other)"
CACHE_LINE = 64


def code_of(maps: Iterable[str]) -> list[tuple[int, int, str]]:
    """The ranges of addresses that contain code, by /proc/self/maps, with the name of their file.

    psutil reads another file, /proc/<pid>/smaps. QEMU shows the addresses of the program only in /proc/self/maps.
    """
    found = []
    for line in maps:
        fields = line.split()
        if len(fields) > 5 and "x" in fields[1]:
            first, last = (int(each, 16) for each in fields[0].split("-"))
            name = os.path.basename(fields[5])
            found.append((first, last, OURS if name.startswith(OURS) else name))
    return sorted(found)


class Block(NamedTuple):
    """A sequence of instructions without a jump, and how many times it was executed."""

    address: int
    size: int
    instructions: int
    times: int


def blocks_of(counts: Iterable[str]) -> list[Block]:
    """The lines that the plugin writes."""
    rows = (line.split() for line in counts)
    return [Block(int(address, 16), *map(int, others)) for address, *others in rows]


def by_library(blocks: Iterable[Block], code: list[tuple[int, int, str]]) -> Counter[str]:
    """The executed instructions per library."""
    starts = [first for first, _, _ in code]
    found: Counter[str] = Counter()
    for block in blocks:
        row = bisect.bisect(starts, block.address) - 1
        found[code[row][2] if row >= 0 and block.address < code[row][1] else UNKNOWN] += (
            block.instructions * block.times
        )
    return found


def bytes_of_code(blocks: Iterable[Block]) -> int:
    """The size of the cache lines that contain the blocks."""
    lines: set[int] = set()
    for block in blocks:
        lines.update(range(block.address // CACHE_LINE, (block.address + block.size - 1) // CACHE_LINE + 1))
    return len(lines) * CACHE_LINE
