"""Samples of lines and of memory: which time a line of user code is charged with, and how a timeline is merged."""

from __future__ import annotations

import itertools
import sysconfig
from types import SimpleNamespace
from typing import Any

from torchdevice.ledger import Site
from torchdevice.profiling import MOST_MOMENTS, _Lines, _Timeline
from torchdevice.reporting.collect import Profile, Timed
from torchdevice.reporting.timeline import pictures

LIBRARY = f"{sysconfig.get_path('purelib')}/library/__init__.py"
IMPORT = "<frozen importlib._bootstrap>"


def _frames(*filenames: str) -> Any:
    """Nested frames, the innermost last."""
    frame = None
    for number, filename in enumerate(filenames, 1):
        code = SimpleNamespace(co_filename=filename, co_name="f")
        frame = SimpleNamespace(f_code=code, f_back=frame, f_lineno=number, f_globals={})
    return frame


def _charged(*filenames: str) -> dict[Site, Timed]:
    lines = _Lines()
    lines._add(_frames(*filenames), True, 0.5)
    return lines.figures


def test_a_line_is_charged_with_what_it_calls() -> None:
    assert _charged("train.py", LIBRARY) == {Site("train.py", 1): Timed(1, 0.5)}


def test_an_import_statement_is_charged_with_the_import() -> None:
    assert _charged("train.py", IMPORT, LIBRARY) == {Site("train.py", 1): Timed(1, 0.5)}
    assert _charged("train.py", IMPORT, LIBRARY, IMPORT, LIBRARY) == {Site("train.py", 1): Timed(1, 0.5)}


def test_imports_inside_a_library_are_its_first_use() -> None:
    assert _charged("train.py", LIBRARY, IMPORT, LIBRARY) == {Site("train.py", 1): Timed(first_use=0.5)}


class _Timer:
    """Half of the time in operators; one more byte in use per sample."""

    samples = 0

    def td_observed_busy(self) -> int:
        self.samples += 1
        return self.samples * 5_000_000

    def td_observed_held(self, device: bytes) -> int:
        return self.samples


def test_a_long_timeline_is_merged_and_loses_neither_time_nor_peak() -> None:
    timer: Any = _Timer()
    timeline = _Timeline(timer, "cuda", 1000.0)
    for number in range(1, 10_001):
        timeline.add(number * 0.01)
    first, *moments = timeline.all()
    assert (first.seconds, first.held, first.busy) == (1000.0, 0, 0.0)
    assert MOST_MOMENTS / 2 <= len(moments) < MOST_MOMENTS
    steps = {round(after.seconds - before.seconds, 6) for before, after in itertools.pairwise(moments)}
    assert len(steps) == 1
    passed = moments[-1].seconds - first.seconds
    assert moments[-1].held == round(passed * 100)
    assert abs(sum(each.busy for each in moments) - passed / 2) < 1e-6
    (picture,) = pictures(Profile(timeline=timeline.all()))
    assert abs(picture.seconds - passed) < 1e-6
    assert picture.most == moments[-1].held
    assert {point.split(",")[1] for point in picture.work.split()} == {"120.0", "60.0"}
