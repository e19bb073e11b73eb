"""The picture of a run over time in the HTML report: memory in use, and the share of time in operators."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from torchdevice.reporting.collect import Moment, Profile

WIDTH, HEIGHT = 1000, 120


@dataclass(frozen=True)
class Picture:
    """The timeline of one process. The areas are the `points` of SVG polygons, in a box of `WIDTH` by `HEIGHT`."""

    process: int
    seconds: float
    most: int
    memory: str
    work: str


def pictures(profile: Profile) -> list[Picture]:
    """One picture per process, the longest first."""
    by_process: dict[int, list[Moment]] = {}
    for moment in profile.timeline:
        by_process.setdefault(moment.process, []).append(moment)
    return sorted(map(_picture, by_process.values()), key=lambda picture: -picture.seconds)


def _picture(moments: Sequence[Moment]) -> Picture:
    begin = moments[0].seconds
    whole = moments[-1].seconds - begin or 1.0
    most = max(moment.held for moment in moments)
    pairs = itertools.pairwise(moments)
    shares = [min(1.0, end.busy / (end.seconds - start.seconds or 1.0)) for start, end in pairs]
    memory = [max(0, moment.held) / (most or 1) for moment in moments[1:]]
    ends = [(moment.seconds - begin) / whole for moment in moments[1:]]
    return Picture(moments[-1].process, whole, max(most, 0), _area(ends, memory), _area(ends, shares))


def _area(ends: Sequence[float], heights: Sequence[float]) -> str:
    """A polygon over the base line that is as high as each value until the end of its interval."""
    corners = [(0.0, 0.0)]
    start = 0.0
    for end, height in zip(ends, heights, strict=True):
        corners += [(start, height), (end, height)]
        start = end
    corners.append((start, 0.0))
    return " ".join(f"{x * WIDTH:.1f},{(1 - y) * HEIGHT:.1f}" for x, y in corners)
