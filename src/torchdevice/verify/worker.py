"""The process that runs the checks of one part: `python -m torchdevice.verify.worker PART WAY [VIRTUAL]`.

The names of checks that are done come as a JSON list on stdin. Each line of stdout is a JSON object: `checks` (their
number), then for every check its name as `started` and its result. The parent learns so which check ended the process.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TextIO

from torchdevice.verify.findings import DIFFERS, SKIPPED, Check, Skipped, in_one_line, perform
from torchdevice.verify.parts import part_named

MACHINE = "machine"
START = "start"  # the check that stands for the part if its process cannot begin


def main(words: Sequence[str], planted: Callable[[], object] = lambda: None) -> None:
    """Run the checks that are not done. `planted` is called when the device is there, for tests of this package."""
    part, way, *rest = words
    answers = _own_stdout()
    done = set(json.loads(sys.stdin.read() or "[]"))
    warnings.simplefilter("ignore")
    from torchdevice.verify import setting

    try:
        here = setting.begin(way, rest[0] if rest else "")
        planted()
        if part == MACHINE:
            from torchdevice.verify.machine import describe

            _say(answers, machine=describe(here))
            return
        module = importlib.import_module(f"torchdevice.verify.{part_named(part).module}")
        checks: list[Check] = list(module.checks(here))
    except Skipped as reason:
        _say(answers, checks=1)
        _say(answers, check=START, status=SKIPPED, detail=in_one_line(str(reason)), figures={})
        return
    _say(answers, checks=len(checks))
    for check in checks:
        if check.name not in done:
            _say(answers, started=check.name)
            status, detail, figures = perform(check)
            _say(answers, check=check.name, status=status, detail=detail, figures=figures)
            if status == DIFFERS and not setting.is_usable(here.kind):
                return  # the parent starts another process


def _own_stdout() -> TextIO:
    """The pipe to the parent. What programs and libraries print goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def _say(answers: TextIO, **line: Any) -> None:
    print(json.dumps(line), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
