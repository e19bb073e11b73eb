"""Rows of the programs for other libraries, of the classic scripts, and of what cannot work."""

from __future__ import annotations

from tests.realworld.program import Program

PROGRAMS: tuple[Program, ...] = ()
# Packages that do not install beside the torch of constraints.txt, and why.
UNAVAILABLE: dict[str, str] = {}
