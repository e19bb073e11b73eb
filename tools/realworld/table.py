"""All programs, in the order of the page. What a row is: `program`; the rows: `libraries` and `scripts`."""

from __future__ import annotations

from tools.realworld import libraries, scripts
from tools.realworld.program import Program as Program

PROGRAMS = (*libraries.PROGRAMS, *scripts.PROGRAMS)
UNAVAILABLE = {**libraries.UNAVAILABLE, **scripts.UNAVAILABLE}
BY_NAME = {program.name: program for program in PROGRAMS}
assert len(BY_NAME) == len(PROGRAMS), "two programs have one name"
