"""Samples of lines: which time a line of user code is charged with."""

from __future__ import annotations

import sysconfig
from types import SimpleNamespace
from typing import Any

from torchdevice.ledger import Site
from torchdevice.profiling import _Lines
from torchdevice.reporting.collect import Timed

LIBRARY = f"{sysconfig.get_path('purelib')}/library/__init__.py"
IMPORT = "<frozen importlib._bootstrap>"


def _frames(*filenames: str) -> Any:
    """Nested frames, the innermost last."""
    frame = None
    for number, filename in enumerate(filenames, 1):
        code = SimpleNamespace(co_filename=filename, co_name="f")
        frame = SimpleNamespace(f_code=code, f_back=frame, f_lineno=number, f_globals={})
    return frame


def _charged(*filenames: str) -> dict[Site, Timed]:
    lines = _Lines()
    lines._add(_frames(*filenames), True, 0.5)
    return lines.figures


def test_a_line_is_charged_with_what_it_calls() -> None:
    assert _charged("train.py", LIBRARY) == {Site("train.py", 1): Timed(1, 0.5)}


def test_an_import_statement_is_charged_with_the_import() -> None:
    assert _charged("train.py", IMPORT, LIBRARY) == {Site("train.py", 1): Timed(1, 0.5)}
    assert _charged("train.py", IMPORT, LIBRARY, IMPORT, LIBRARY) == {Site("train.py", 1): Timed(1, 0.5)}


def test_imports_inside_a_library_are_its_first_use() -> None:
    assert _charged("train.py", LIBRARY, IMPORT, LIBRARY) == {Site("train.py", 1): Timed(first_use=0.5)}
