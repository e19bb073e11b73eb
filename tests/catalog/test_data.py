"""The data and the pages in the repository: of the installed torch, complete, and printed from each other."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch

from tests.torches import recorded_on_pinned_torch
from tools.catalog import results
from tools.catalog.codemap import BEGIN, END, answering_modules, codebase_map
from tools.catalog.gaps import gaps
from tools.catalog.pages import figures, gap_log, page_name, spaces, summary
from tools.catalog.results import Called
from torchdevice.catalog.entries import Entry
from torchdevice.catalog.markdown import namespace_page
from torchdevice.catalog.status import GAP, NOT_STARTED
from torchdevice.catalog.store import load_results, shipped_notes
from torchdevice.catalog.treatment import FALLBACK, PASSTHROUGH, SIMULATED, TRANSLATED, UNSUPPORTED
from torchdevice.cli.catalog import torch_version

DOCS = Path(__file__).parents[2] / "docs"
pytestmark = recorded_on_pinned_torch
AGAIN = "run: make catalog (or python -m tools.catalog.publish if only the pages are old)"


def test_nothing_is_not_started(entries: list[Entry]) -> None:
    assert load_results().torch == torch.__version__
    assert [entry.name for entry in entries if entry.status == NOT_STARTED] == [], AGAIN


@pytest.mark.parametrize(("host", "least"), [("cpu", 99.9), ("mps", 99.9), ("cuda", 99.9)])
def test_shares_against_plain_torch(entries: list[Entry], host: str, least: float) -> None:
    passed, able, share = next(row[1:] for row in figures(entries) if row[0] == host)
    assert able > 3500
    assert share >= least, f"{able - passed} of {able} fail on {host}"


def test_the_package_has_the_part_of_the_results_that_its_commands_print() -> None:
    assert load_results() == results.load().shipped(), AGAIN


def test_every_failure_is_explained_and_nothing_else_is(entries: list[Entry]) -> None:
    failing = {e.name for e in entries if e.plain and {"raised", "differs"} & set(e.outcomes.values())}
    unsupported = {e.name for e in entries if e.treatment == UNSUPPORTED}
    assert failing - unsupported == {e.name for e in entries if e.note and e.plain}


def test_every_gap_is_in_the_log(entries: list[Entry], called: dict[str, Called]) -> None:
    logged = {gap.name for gap in gaps(entries, called)}
    assert {entry.name for entry in entries if entry.status == GAP} <= logged


def test_every_replacement_has_torchs_signature(entries: list[Entry]) -> None:
    assert [entry.name for entry in entries if entry.same_signature is False] == []


def test_treatments_are_read_from_the_tables(entries: list[Entry]) -> None:
    known = {entry.name: entry.treatment for entry in entries}
    assert known["torch.zeros"] == TRANSLATED
    assert known["torch.Tensor.to"] == TRANSLATED
    assert known["torch.autocast"] == TRANSLATED
    assert known["torch.cuda.memory_allocated"] == SIMULATED
    assert known["torch.cuda.gds.GdsFile"] == UNSUPPORTED
    assert known["torch.mode"] == FALLBACK
    assert known["torch.add"] == PASSTHROUGH
    assert all(count > 20 for count in Counter(known.values()).values())


def test_notes_are_about_names_that_exist(entries: list[Entry]) -> None:
    assert set(shipped_notes()) <= {entry.name for entry in entries}


def test_the_pages_are_printed_from_the_data(entries: list[Entry], called: dict[str, Called]) -> None:
    folder = DOCS / "catalog"
    assert (folder / "README.md").read_text(encoding="utf-8") == summary(entries, torch_version()), AGAIN
    for space, members in spaces(entries).items():
        assert (folder / page_name(space)).read_text(encoding="utf-8") == namespace_page(space, members), AGAIN
    assert (DOCS / "gaps.md").read_text(encoding="utf-8") == gap_log(gaps(entries, called), torch_version()), AGAIN
    assert len(list(folder.glob("*.md"))) == len(spaces(entries)) + 1


def test_the_map_is_printed_from_the_data(entries: list[Entry]) -> None:
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    text = page.partition(BEGIN)[2].partition(END)[0].strip()
    assert text == codebase_map(entries, answering_modules(entries)).strip(), AGAIN
    assert "torchdevice.translate.adapters" in text
    homes = answering_modules(entries)
    assert homes["torch.accelerator.current_accelerator"] == "torchdevice.answers.accelerator"
    assert homes["torch.distributed.init_process_group"] == "torchdevice.distributed.groups"
