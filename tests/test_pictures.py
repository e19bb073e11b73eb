"""Pictures of a run: of this repository's program, without paths of a machine, and without requests to other hosts."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from tests.conftest import ROOT
from tools.docs import pictures

RUN = (pictures.IMAGES / "run.svg").read_text(encoding="utf-8")
DRAWN = pictures.terminal("torchdevice run x.py", "a < b & c\nlast line\n")


def words(svg: str) -> str:
    return "".join(ElementTree.fromstring(svg).itertext()).replace("\xa0", " ")


@pytest.mark.parametrize("svg", [RUN, DRAWN], ids=["kept", "drawn"])
def test_a_picture_fetches_nothing(svg: str) -> None:
    assert "@font-face" not in svg
    assert re.findall(r"url\((?!#)|href=|<image", svg) == []


def test_a_picture_shows_what_was_typed_and_printed() -> None:
    assert "$ torchdevice run x.py" in words(DRAWN)
    assert "a < b & c" in words(DRAWN)
    assert "last line" in words(DRAWN)


def test_the_kept_picture_is_of_the_example() -> None:
    shown = words(RUN)
    assert f"$ {' '.join(pictures.COMMAND)}" in shown
    assert (ROOT / pictures.COMMAND[-1]).exists()
    assert "torchdevice: cuda → " in shown
    assert re.findall(r"(?:/tmp|/home|/root|/Users)\b", shown) == []


def test_the_report_is_a_picture() -> None:
    assert (pictures.IMAGES / "report.png").read_bytes().startswith(b"\x89PNG")
