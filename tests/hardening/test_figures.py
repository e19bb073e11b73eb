"""docs/reliability.md shows the figures that the long targets recorded, and names tests that exist."""

from __future__ import annotations

import re

from tools.hardening import figures


def test_the_page_shows_what_was_recorded() -> None:
    page = figures.PAGE.read_text(encoding="utf-8")
    shown = page.partition(figures.BEGIN)[2].partition(figures.END)[0]
    assert shown == figures.rendered(figures.load())
    assert set(figures.load()) == set(figures.ROWS)


def test_the_tests_that_are_named_exist() -> None:
    root = figures.PAGE.parents[1]
    named = set(re.findall(r"`(tests/[\w/]+\.py)`", figures.PAGE.read_text(encoding="utf-8")))
    assert len(named) > 8
    assert [name for name in named if not (root / name).exists()] == []
