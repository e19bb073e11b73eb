"""docs/specification.md: printed from its rows, and what the rows name exists."""

from __future__ import annotations

import argparse
import ast
import functools
import importlib
import re

import pytest

from tests.conftest import ROOT
from tools.specification import page
from tools.specification.row import CONTRADICTED, MET, MISSING, NO_MAC, PARTLY, VERDICTS, Row
from tools.specification.table import DOCUMENTS, EVERY_ROW
from torchdevice.cli import COMMANDS

BY_ROW = pytest.mark.parametrize("row", EVERY_ROW, ids=lambda row: row.id)
NAMED = sorted({shown for row in EVERY_ROW for shown in row.shown_by})


@functools.cache
def functions(path: str) -> set[str]:
    """The functions of a file that are not inside others: tests, and programs that a test runs."""
    body = ast.parse((ROOT / path).read_text(encoding="utf-8")).body
    return {node.name for node in body if isinstance(node, ast.FunctionDef)}


def options(parser: argparse.ArgumentParser) -> set[str]:
    return {option for action in parser._actions for option in action.option_strings}


def exists(shown: str) -> bool:
    """Whether a row may name it: a test, a command with its options, a target of the Makefile, a page."""
    path, _, name = shown.partition("::")
    if name:
        return path.startswith("tests/") and (ROOT / path).is_file() and name in functions(path)
    program, *words = shown.split()
    if program == "torchdevice" and words:
        command, *given = words
        if command not in COMMANDS:
            return False
        known = options(importlib.import_module(f"torchdevice.cli.{command}").parser())
        return {word for word in given if word.startswith("-")} <= known
    if program == "make" and len(words) == 1:
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        return words[0] in targets
    return shown.startswith("docs/") and (ROOT / shown).is_file()


def test_the_page_is_printed_from_the_rows() -> None:
    assert page.PAGE.read_text(encoding="utf-8") == page.page(), "run: make docs"


def test_ids_are_distinct_and_say_the_document() -> None:
    names = [row.id for row in EVERY_ROW]
    assert len(names) == len(set(names))
    for document, rows in DOCUMENTS.items():
        assert {row.id[0] for row in rows} == {document[0].upper()}
    assert page.HEADINGS.keys() == DOCUMENTS.keys()


@pytest.mark.parametrize("shown", NAMED)
def test_what_a_row_names_exists(shown: str) -> None:
    assert exists(shown)


@pytest.mark.parametrize(
    "shown",
    [
        "tests/test_session.py::test_that_nobody_wrote",
        "tests/test_nowhere.py::test_autoload",
        "tests/test_session.py",
        "torchdevice fly",
        "torchdevice run --fast",
        "make nothing",
        "docs/nowhere.md",
    ],
)
def test_what_does_not_exist_is_seen(shown: str) -> None:
    assert not exists(shown)


@BY_ROW
def test_a_verdict_comes_with_what_it_needs(row: Row) -> None:
    """What is met is shown by something that can be run; what is not says why; another way has its page."""
    assert row.verdict in VERDICTS
    runs = [shown for shown in row.shown_by if not shown.startswith("docs/")]
    assert runs or row.verdict in (MISSING, NO_MAC)
    assert row.note or row.verdict == MET
    assert (len(runs) < len(row.shown_by)) == (row.verdict == CONTRADICTED)
    assert row.note.endswith(".") or not row.note
    assert row.requirement.endswith(".")
    assert "|" not in row.requirement + row.note
    assert row.verdict != PARTLY or len(row.note) > 20
