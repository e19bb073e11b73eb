"""The figures of the README are those of the pages that were measured."""

from __future__ import annotations

import re

from tests.checkout import ROOT


def totals() -> dict[str, str]:
    """Per mode: how many of the programs passed."""
    page = (ROOT / "docs" / "realworld.md").read_text(encoding="utf-8").partition("## Totals")[2].partition("\n## ")[0]
    return {
        mode: f"{passed} of {all_}" for mode, passed, all_ in re.findall(r"^\| (.+?) \| (\d+) \| (\d+) \|", page, re.M)
    }


def test_the_programs_that_passed() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (row,) = (line for line in readme.splitlines() if line.startswith("| programs that others wrote"))
    of = totals()
    virtual = {of["`--virtual cuda`"], of["virtual `mps:real`"]}
    assert virtual == {of["`--virtual cuda`"]}
    shown = [cell.strip() for cell in row.split("|")[2:-1]]
    assert shown == [of["`torchdevice run`"], of["written for `mps`, on CUDA"], *virtual, "not yet"]


def test_the_time_of_a_training_step() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (row,) = (line for line in readme.splitlines() if line.startswith("| time of a training step"))
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    measured = [
        next(iter(re.findall(rf"^\| training step on {device}: active, accelerate \| ([0-9.]+)", page, re.M)))
        for device in ("cpu", "cuda", "virtual cuda")
    ]
    assert [cell.strip() for cell in row.split("|")[2:-1]] == [*(f"{float(each):.2f}×" for each in measured), "not yet"]
