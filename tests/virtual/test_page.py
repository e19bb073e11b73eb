"""The table of docs/virtual.md on devices that an accelerator backs is printed from recorded results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools.conformance import report
from tools.docs import backed, sections


def test_the_table_is_printed() -> None:
    page = backed.PAGE.read_text(encoding="utf-8")
    assert page.partition(backed.BEGIN)[2].partition(backed.END)[0].strip() == backed.table(), "run `make docs`"


def test_a_cell_says_what_is_not_equal() -> None:
    figures = {"samples": 1010, "refused": 5, "wrong": {"bincount": 8}, "ended": ["svd"]}
    wanted = "997 of 1,010 samples; 5 refused as by a real device; 8 of `bincount` differ; `svd` ended the process"
    assert backed.samples(figures) == wanted


def test_a_page_without_markers_is_not_changed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- begin -->\nold\n")
    with pytest.raises(ValueError, match="lacks the markers"):
        sections.put_into(page, "<!-- begin -->", "<!-- end -->", "new")
    assert page.read_text() == "<!-- begin -->\nold\n"


def test_figures_of_another_torch_are_removed(tmp_path: Path) -> None:
    file, old, new = tmp_path / "backed.json", {"torch": "2.11"}, {"torch": "2.13"}
    for machine, place, dtype in (
        (old, "mps@cuda", "int64"),
        (new, "mps@cuda", "float32"),
        (new, "xpu@cuda", "float32"),
        (new, "mps@cuda", "int64"),
    ):
        report.keep(file, machine, place, dtype, {"samples": 1})
    one = {"samples": 1}
    wanted = {"mps@cuda": {"float32": one, "int64": one}, "xpu@cuda": {"float32": one}}
    assert json.loads(file.read_text()) == {"machine": new, "figures": wanted}
