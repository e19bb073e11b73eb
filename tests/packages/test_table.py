"""The table: what it names exists and says what it does, and docs/packages.md is printed from it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from tools.docs import packages as printed
from tools.imports.count import imported
from tools.imports.packages import COUNTED, is_served, reason
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


def test_what_public_code_imports_is_there_or_has_a_reason() -> None:
    rows = printed.counted()
    common = [name for name, files in rows.items() if printed.is_common(files) and name.partition(".")[0] in COUNTED]
    assert len(common) > 200
    assert [name for name in common if not is_served(name) and not reason(name)] == []
    assert sum(is_served(name) for name in common) > 100
    assert not is_served("flash_attn.models.gpt.GPTLMHeadModel")
    assert is_served("xformers.ops.fmha.BlockDiagonalMask.from_seqlens")


def test_imports_are_counted_by_their_full_names() -> None:
    source = (
        "import xformers.ops as xops, numpy\n"
        "from flash_attn import bert_padding as padding, flash_attn_func\n"
        "from .flash_attn import mine\n"
        "def f(x):\n"
        "    import apex\n"
        "    return apex.amp.initialize(xops.unbind(padding.pad_input(x)))\n"
    )
    assert imported(source) == {
        *("xformers.ops", "xformers.ops.unbind", "flash_attn.bert_padding", "flash_attn.bert_padding.pad_input"),
        *("flash_attn.flash_attn_func", "apex", "apex.amp.initialize"),
    }


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
