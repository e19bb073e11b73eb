"""What a run measured: all of it in results.json, beside this file, and in the package what its commands print.

A row of results.json is `cpu mps cuda|plain|by|call`, the hosts by the first letter of their outcome; what failed has
its reason beside it. The package has no calls, and reasons only where plain torch can do what a host cannot.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.catalog.mlx import equivalents
from tools.catalog.reasons import out_of_reach
from torchdevice.catalog import store
from torchdevice.catalog.measured import DIFFERS, HOSTS, NONE, OUTCOMES, PASSED, RAISED, Measured
from torchdevice.catalog.store import CAN, CANNOT, Equivalent

RESULTS = Path(__file__).with_name("results.json")
_BY_LETTER = {outcome[0]: outcome for outcome in OUTCOMES}


@dataclass(frozen=True)
class Called:
    """What was run for one name: by which database or call, whether plain torch can, what came of it, and why.

    `elsewhere`: operators of it that did not run on MPS.
    """

    by: str = ""
    call: str = ""
    plain: bool = False
    outcomes: dict[str, str] = field(default_factory=dict)
    why: dict[str, str] = field(default_factory=dict)
    elsewhere: tuple[str, ...] = ()

    def reason(self, name: str) -> str:
        """Why there is nothing to run here; empty where a call was made, and where no reason is known."""
        called = self.plain or PASSED in self.outcomes.values()
        return "" if called else out_of_reach(name, self.why.get("cpu", ""))

    def shipped(self, name: str) -> Measured:
        """What of it the package has."""
        failed = {host for host, outcome in self.outcomes.items() if outcome in (DIFFERS, RAISED)}
        why = {host: text for host, text in self.why.items() if host in failed}
        return Measured(self.by, self.plain, self.outcomes, why, self.reason(name), self.elsewhere)


@dataclass
class Run:
    """Everything that was measured, for one torch. `mlx`: functions whose MLX equivalent gave the same values."""

    torch: str = ""
    called: dict[str, Called] = field(default_factory=dict)
    mlx: frozenset[str] = frozenset()

    def shipped(self) -> store.Results:
        """What of it the package has."""
        pairs = {name: equivalents()[name] for name in sorted(self.mlx)}
        mlx = {name: Equivalent(pair.expression, pair.confidence) for name, pair in pairs.items()}
        return store.Results(self.torch, {name: called.shipped(name) for name, called in self.called.items()}, mlx)


def load(path: Path = RESULTS) -> Run:
    """What the last `make catalog` measured."""
    data = json.loads(path.read_text(encoding="utf-8"))
    why, elsewhere = data["why"], data["elsewhere"]
    rows = {name: _read(text, why.get(name, {}), elsewhere.get(name, "")) for name, text in data["rows"].items()}
    return Run(data["torch"], rows, frozenset(data["mlx"]))


def save(run: Run, path: Path = RESULTS) -> None:
    """All of it, with a line per name, sorted."""
    rows = {name: _written(called) for name, called in sorted(run.called.items())}
    why = {name: called.why for name, called in sorted(run.called.items()) if called.why}
    elsewhere = {name: " ".join(called.elsewhere) for name, called in sorted(run.called.items()) if called.elsewhere}
    data = {"torch": run.torch, "mlx": sorted(run.mlx), "rows": rows, "why": why, "elsewhere": elsewhere}
    path.write_text(json.dumps(data, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")


def ship(results: store.Results, path: Path = store.MEASURED) -> None:
    """The package's part, in one line; `torchdevice.catalog.store` tells its form."""
    rows = sorted(results.measured.items())
    mlx: dict[str, dict[str, str]] = {}
    for name, (expression, confidence) in sorted(results.mlx.items()):
        mlx.setdefault(confidence, {})[name] = expression
    data: dict[str, Any] = {
        "torch": results.torch,
        "mlx": mlx,
        "reasons": _grouped((name, measured.reason) for name, measured in rows),
        "elsewhere": _grouped((name, " ".join(measured.elsewhere)) for name, measured in rows),
        "rows": _grouped(
            (name, f"{_letters(measured)} {CAN if measured.plain else CANNOT} {measured.by}") for name, measured in rows
        ),
        "why": {name: measured.why for name, measured in rows if measured.why},
    }
    path.write_text(json.dumps(data, separators=(",", ":"), ensure_ascii=False) + "\n", encoding="utf-8")


def _grouped(rows: Iterable[tuple[str, str]]) -> dict[str, dict[str, str]]:
    """Names by what they have in common and by their owner; those that have nothing are left out."""
    groups: dict[str, dict[str, list[str]]] = {}
    for name, code in rows:
        owner, _, last = name.rpartition(".")
        if code:
            groups.setdefault(code, {}).setdefault(owner, []).append(last)
    return {code: {owner: " ".join(names) for owner, names in owners.items()} for code, owners in groups.items()}


def _letters(row: Called | Measured) -> str:
    return "".join(row.outcomes.get(host, NONE)[0] for host in HOSTS)


def _written(called: Called) -> str:
    return "|".join((_letters(called), "y" if called.plain else "n", called.by, called.call))


def _read(text: str, why: dict[str, str], elsewhere: str) -> Called:
    letters, plain, by, call = text.split("|", 3)
    outcomes = {host: _BY_LETTER[letter] for host, letter in zip(HOSTS, letters, strict=True)}
    return Called(by, call, plain == "y", outcomes, why, tuple(elsewhere.split()))
