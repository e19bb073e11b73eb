"""The outcomes that are kept, and why tests fail that pass on a real device."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"
EXPECTED = HERE / "expected.json"  # file → reason → tests that count and do not pass
REAL = "real"  # the mode of the device that is there
TOO_LONG = "too long"
ENDED_BY_THE_CLOCK = 1  # the exit status that `faulthandler` gives a worker whose test took too long
OUTCOMES = ("passed", "failed", "crashed", TOO_LONG, "skipped")
GENERATED = {"test_mps": ("TestErrorInputsMPS",)}  # classes whose tests torch generates from its operator database


@dataclass
class Run:
    """One file of tests in one mode. `names` by outcome."""

    torch: str
    machine: str
    date: str
    names: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, Any]], **facts: str) -> Run:
        """From the lines that a worker printed."""
        names: dict[str, list[str]] = {outcome: [] for outcome in OUTCOMES}
        for row in rows:
            late = row.get("error") == f"exit code {ENDED_BY_THE_CLOCK}"
            names[TOO_LONG if late else row["status"]].append(row["op"])
        return cls(names={outcome: sorted(each) for outcome, each in names.items()}, **facts)

    def outcome(self, name: str) -> str:
        """Of one test."""
        return next((outcome for outcome, names in self.names.items() if name in names), "not there")


Results = dict[str, dict[str, Run]]  # mode → file → run


def real_of(results: Results, mode: str, file: str) -> Run | None:
    """What a mode is compared with; None for several devices and for a Mac's, of which none was at hand."""
    return None if mode == REAL or ":" in mode else results.get(REAL, {}).get(file)


def counted(ours: Run, real: Run | None) -> list[str]:
    """The tests that count: those that pass on the real device, or all that were run."""
    if real:
        return real.names["passed"]
    return [name for outcome, names in ours.names.items() for name in names if outcome != "skipped"]


def packed(names: list[str]) -> dict[str, str]:
    """Class → its tests: thousands of names, a line per class."""
    classes: dict[str, list[str]] = {}
    for name in names:
        owner, _, test = name.partition(".")
        classes.setdefault(owner, []).append(test)
    return {owner: " ".join(tests) for owner, tests in classes.items()}


def unpacked(classes: Mapping[str, str]) -> list[str]:
    """The names again."""
    return [f"{owner}.{test}" for owner, tests in classes.items() for test in tests.split()]


def load(path: Path = RESULTS) -> Results:
    """What was kept."""
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}

    def run(told: dict[str, Any]) -> Run:
        return Run(**{**told, "names": {outcome: unpacked(each) for outcome, each in told["names"].items()}})

    return {mode: {file: run(told) for file, told in files.items()} for mode, files in kept.items()}


def save(results: Results, path: Path = RESULTS) -> None:
    """Keep them."""

    def told(run: Run) -> dict[str, Any]:
        return {**asdict(run), "names": {outcome: packed(names) for outcome, names in run.names.items()}}

    plain = {mode: {file: told(run) for file, run in sorted(files.items())} for mode, files in sorted(results.items())}
    path.write_text(json.dumps(plain, indent=0) + "\n", encoding="utf-8")


def reasons() -> dict[str, dict[str, str]]:
    """Why tests are expected to fail: file → test → reason."""
    told = json.loads(EXPECTED.read_text(encoding="utf-8"))
    return {file: {name: reason for reason, names in groups.items() for name in names} for file, groups in told.items()}
