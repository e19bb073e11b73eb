"""Every command in the table of examples/README.md is run, and every example is in it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.documented import Command, install_commands, run

EXAMPLES = Path(__file__).parents[1] / "examples"
LINK = re.compile(r"\[(?P<file>[\w.]+)\]\((?P=file)\)")
CELLS = re.compile(r"(?<!\\)\|")


class Row(NamedTuple):
    """A row of the table."""

    file: str
    shows: str
    command: str
    prints: str


def table() -> list[Row]:
    rows = []
    for line in (EXAMPLES / "README.md").read_text(encoding="utf-8").splitlines():
        if found := LINK.match(line.strip("| ")):
            _, shows, command, prints = (cell.strip().strip("`") for cell in CELLS.split(line.strip("| ")))
            rows.append(Row(found["file"], shows, command, prints.replace("\\|", "|")))
    return rows


def files() -> list[str]:
    return sorted({row.file for row in table()})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the examples where a clone has them: programs may write there."""
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    return tmp_path


@pytest.mark.long
@pytest.mark.parametrize("file", files())
def test_commands_of(file: str, folder: Path) -> None:
    if file.endswith(".ipynb"):
        pytest.importorskip("nbclient", reason="notebooks are run by nbclient, which is not installed")
        pytest.importorskip("ipykernel", reason="notebooks are run in ipykernel, which is not installed")
    path = install_commands(folder / "bin")
    for row in table():
        if row.file == file:
            assert f"examples/{file}" in row.command, "the row runs another file"
            command = Command(row.command, f"…\n{row.prints}\n…\n", 0, 0)
            complaint = command.complaint(*run(command, folder, path))
            assert complaint is None, f"{row.command}: {complaint}"


def test_every_file_is_in_the_table() -> None:
    there = {path.name for path in EXAMPLES.iterdir() if path.suffix in (".py", ".ipynb")}
    assert there == set(files())


def test_programs_are_short_and_say_their_command() -> None:
    for row in table():
        if row.file.endswith(".py") and row.file != "train_cuda.py":
            text = (EXAMPLES / row.file).read_text(encoding="utf-8")
            assert len(text.splitlines()) <= 60, f"{row.file} is too long for one look"
            assert row.command in text, f"{row.file} does not say: {row.command}"
