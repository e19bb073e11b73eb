"""Known bugs of MPS that give wrong values without an error: a small program each, present or absent on this device.

The programs are those of `tests/mac_reports`, written into `wrong_values.json` by `tools.mac_reports`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from importlib.resources import files

from torchdevice.verify.findings import Check, Differs, Result, in_one_line
from torchdevice.verify.setting import Setting

DATA = "wrong_values.json"


@dataclass(frozen=True)
class Bug:
    """`fixed` is what the report says. `program` compares the device with the CPU and raises an error."""

    id: str
    link: str
    title: str
    fixed: str
    program: str


def bugs() -> list[Bug]:
    """In the order of the file."""
    text = files("torchdevice.verify").joinpath(DATA).read_text(encoding="utf-8")
    return [Bug(**row) for row in json.loads(text)]


def checks(setting: Setting) -> Iterator[Check]:
    """A row per bug."""
    for bug in bugs():
        yield Check(bug.id, partial(look_for, bug, setting.kind))


def look_for(bug: Bug, kind: str) -> Result:
    """Run the program on this device. Its assertion is the bug."""
    figures = {"link": bug.link, "fixed": bug.fixed}
    program = compile(bug.program.replace('"mps"', repr(kind)), f"<{bug.id}>", "exec")
    try:
        exec(program, {"__name__": "__main__"})
    except AssertionError as error:
        told = f": {in_one_line(str(error))}" if str(error) else ""
        raise Differs(f"present: {bug.title}{told}", {**figures, "state": "present"}) from error
    return Result(f"absent: {bug.title}", {**figures, "state": "absent"})
