"""What users have been given stays: every public name, error, command and option of public_names.json is still there.

The list was written before the tools left the package. A name may be added at any time; taking one away is a decision,
and changes that file.
"""

from __future__ import annotations

import argparse
import importlib
import json
from pathlib import Path

import pytest

from torchdevice.cli import COMMANDS

KNOWN = json.loads((Path(__file__).parent / "public_names.json").read_text(encoding="utf-8"))
OPTIONS = KNOWN.pop("commands")


def options(parser: argparse.ArgumentParser) -> set[str]:
    """Options by their strings, other arguments by their names in capitals and, after `=`, what they may be."""
    found = set()
    for action in parser._actions:
        found |= {*action.option_strings} or {
            action.dest.upper(),
            *(f"{action.dest.upper()}={choice}" for choice in action.choices or ()),
        }
    return found


@pytest.mark.parametrize("module", KNOWN)
def test_no_public_name_is_lost(module: str) -> None:
    names = set(KNOWN[module])
    home = importlib.import_module(module)
    assert {name for name in names if not hasattr(home, name)} == set()
    assert names <= set(getattr(home, "__all__", names))


@pytest.mark.parametrize("command", OPTIONS)
def test_no_command_or_option_is_lost(command: str) -> None:
    assert command in COMMANDS
    parser = importlib.import_module(f"torchdevice.cli.{command}").parser()
    assert set(OPTIONS[command]) - options(parser) == set()
