"""`torchdevice doctor`: runs the checks of `checks` and prints them; exit status 1 if anything cannot work."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence

from torchdevice.cli.checks import CHECKS, FAIL, OK, WARN, Check
from torchdevice.cli.parsing import Parser

MARKS = {OK: "✓", WARN: "!", FAIL: "✗"}


def parser() -> Parser:
    """`--json` for programs."""
    parser = Parser(
        "doctor",
        "Check this installation: versions, accelerators, settings, and a real run of each mechanism.\n"
        "✓ works, ! works but read it, ✗ does not work; exit status 1 if there is a ✗.",
        ["torchdevice doctor", "torchdevice doctor --json"],
    )
    parser.add_argument("--json", action="store_true", help="the same for programs")
    return parser


def main(words: Sequence[str]) -> int:
    """Print what was found, as it is found."""
    options = parser().parse_args(words)
    found: list[Check] = []
    for check in findings():
        found.append(check)
        if not options.json:
            print(f"{MARKS[check.status]} {check.name:<16} {check.detail}", flush=True)
            if check.fix:
                print(f"  {'':<16} fix: {check.fix}", flush=True)
    failed = any(check.status == FAIL for check in found)
    if options.json:
        print(json.dumps({"schema": 1, "ok": not failed, "checks": [dataclasses.asdict(c) for c in found]}, indent=2))
    return 1 if failed else 0


def findings() -> Iterator[Check]:
    """All checks; without torch only those that need none."""
    for check in CHECKS:
        for found in check():
            yield found
            if found.name == "torch" and found.status == FAIL:
                return
