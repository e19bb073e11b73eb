"""Processes that tests start find this checkout, installed or not."""

from __future__ import annotations

import os
import sys

import pytest

from tests import checkout


@pytest.fixture
def _not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    # An editable installation leaves what it knows of the package in `src` too.
    folders = {str(checkout.ROOT / "src"), *map(str, checkout.installed_packages())}
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in folders])
    monkeypatch.setenv("PYTHONPATH", "")


@pytest.mark.usefixtures("_not_installed")
def test_what_is_not_installed_has_an_entry_point_everywhere() -> None:
    """In this process, in those that it starts, and in those that a harness starts with paths of its own."""
    checkout.give_it_an_entry_point()
    assert str(checkout.ENTRY_POINT) in sys.path
    assert str(checkout.ENTRY_POINT) in os.environ["PYTHONPATH"].split(os.pathsep)
    assert str(checkout.ENTRY_POINT) in checkout.source_paths()
