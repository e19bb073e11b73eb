"""The table: what it names exists and says what it does, and docs/packages.md is printed from it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from tools.docs import packages as printed
from torchdevice.packages.libraries import CHECKS
from torchdevice.packages.table import PACKAGES, ROWS, Package


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_each_name_has_a_home_and_says_what_it_does(row: Package) -> None:
    for offers in row.modules.values():
        for offer in offers:
            home = importlib.import_module(f"torchdevice.packages.{offer.home}")
            assert len({*offer.names}) == len(offer.names)
            for name in offer.names:
                assert hasattr(home, name), name
                assert row.name == "triton" or getattr(home, name).__doc__, name
    assert row.how
    assert row.left_out
    assert row.version


def test_checks_of_libraries_have_a_package_and_a_reason() -> None:
    assert all(check.package in PACKAGES and check.reason for check in CHECKS)


def test_the_document_is_printed_from_the_table() -> None:
    page = Path(__file__).parents[2] / "docs" / "packages.md"
    assert page.read_text(encoding="utf-8") == printed.page(), "run: make docs"


def test_nothing_is_loaded_before_a_program_imports_it() -> None:
    code = (
        "import sys, torch, torchdevice\n"
        "torchdevice.activate()\n"
        "print(sorted(name for name in sys.modules if name.startswith('torchdevice.packages')))\n"
        "torchdevice.deactivate()\n"
        "torchdevice.activate(packages=True)\n"
        "print(sorted(name.rpartition('.')[2] for name in sys.modules if name.startswith('torchdevice.packages.')))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    without, switched_on = done.stdout.splitlines()
    assert without == "[]"
    interpreter = ["counting", "triton_interpreter"] if importlib.util.find_spec("triton") else []
    assert switched_on == str(sorted(["choices", "finder", "libraries", "table", *interpreter]))
