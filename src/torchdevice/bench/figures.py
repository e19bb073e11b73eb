"""What a benchmark says (`Figure`), and how two variants are compared fairly (`interleaved`). Knows no torch."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

Timed = Callable[[], float]
AGAIN = "plain, a second time"  # the same against itself: what the machine adds to every other ratio of the run


@dataclass(frozen=True)
class Figure:
    """One measured number, the limit that it should keep, and between which quartiles it lies."""

    what: str
    value: float
    unit: str = "×"
    limit: float | None = None
    spread: tuple[float, float] | None = None
    note: str = ""

    @classmethod
    def from_json(cls, row: dict[str, Any]) -> Figure:
        """What `dataclasses.asdict` gave, after JSON made a list of its pair."""
        return cls(**{**row, "spread": tuple(row["spread"]) if row["spread"] else None})

    @property
    def kept(self) -> bool | None:
        """Whether the limit is kept to the digits that are shown; None without one."""
        return None if self.limit is None else round(self.value, self.digits) <= self.limit

    @property
    def digits(self) -> int:
        """A limit of a few percent needs more digits than a number of microseconds."""
        return 3 if self.unit == "×" and self.limit is not None and 1 < self.limit < 1.1 else 2

    @property
    def limit_text(self) -> str:
        """The limit as it is shown; nothing without one."""
        return "" if self.limit is None else f"{self.limit:g} {self.unit}".replace(" ×", "×")

    @property
    def mark(self) -> str:
        """Whether the limit is kept, as one character."""
        return {True: "✓", False: "✗", None: ""}[self.kept]

    def __str__(self) -> str:
        spread = f" ({self.spread[0]:.{self.digits}f}–{self.spread[1]:.{self.digits}f})" if self.spread else ""
        return f"{self.value:.{self.digits}f}{spread} {self.unit}".replace(" ×", "×")


def interleaved(variants: dict[str, Timed], base: str, rounds: int) -> dict[str, tuple[float, tuple[float, float]]]:
    """Each variant's ratio to `base` within the same round: median and quartiles. The order rotates."""
    names = list(variants)
    measured: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            measured[name].append(variants[name]())
    found = {}
    for name in names:
        ratios = [one / plain for one, plain in zip(measured[name], measured[base], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        found[name] = (middle, (low, high))
    return found


def emit(figures: Iterable[Figure]) -> None:
    """On stdout, one JSON line each: how a benchmark's process answers `runner`."""
    for figure in figures:
        print(json.dumps(asdict(figure), ensure_ascii=False), flush=True)


def read(lines: Sequence[str]) -> list[Figure]:
    """The other end of `emit`; other output of the process is not ours."""
    return [Figure.from_json(json.loads(line)) for line in lines if line.startswith('{"what"')]
