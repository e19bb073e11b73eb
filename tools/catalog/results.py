"""What a run measured: all of it in results.json, beside this file, and in the package what its commands print.

A row of results.json is `cpu mps cuda|plain|by|call`, the hosts by the first letter of their outcome; what failed has
its reason beside it. The package has no calls, and reasons only where plain torch can do what a host cannot.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.catalog.mlx import equivalents
from torchdevice.catalog import store
from torchdevice.catalog.status import DIFFERS, HOSTS, NONE, OUTCOMES, PASSED, RAISED, Measured
from torchdevice.catalog.store import ABSENT, CAN, CANNOT, Equivalent

RESULTS = Path(__file__).with_name("results.json")
_BY_LETTER = {outcome[0]: outcome for outcome in OUTCOMES}

# By the type of the exception: the words by which torch itself says that there is nothing to run here.
REFUSALS = {
    "CudaOnlyError": "",
    "ModuleNotFoundError": "No module named",
    "NotImplementedError": "",
    "RuntimeError": "is now removed|was removed|when none is available",
    "TypeError": "instantiate abstract class|cannot be instantiated",
}


@dataclass(frozen=True)
class Called:
    """What was run for one name: by which database or call, whether plain torch can, what came of it, and why."""

    by: str = ""
    call: str = ""
    plain: bool = False
    outcomes: dict[str, str] = field(default_factory=dict)
    why: dict[str, str] = field(default_factory=dict)

    @property
    def absent(self) -> bool:
        """Whether torch itself refuses, as there is nothing to run here."""
        kind, _, words = self.why.get("cpu", "").partition(": ")
        return PASSED not in self.outcomes.values() and kind in REFUSALS and bool(re.search(REFUSALS[kind], words))

    def shipped(self) -> Measured:
        """What of it the package has."""
        failed = {host for host, outcome in self.outcomes.items() if outcome in (DIFFERS, RAISED)}
        why = {host: text for host, text in self.why.items() if host in failed}
        return Measured(self.by, self.plain, self.outcomes, why, self.absent)


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
        return store.Results(self.torch, {name: called.shipped() for name, called in self.called.items()}, mlx)


def load(path: Path = RESULTS) -> Run:
    """What the last `make catalog` measured."""
    data = json.loads(path.read_text(encoding="utf-8"))
    rows = {name: _read(text, data["why"].get(name, {})) for name, text in data["rows"].items()}
    return Run(data["torch"], rows, frozenset(data["mlx"]))


def save(run: Run, path: Path = RESULTS) -> None:
    """All of it, with a line per name, sorted."""
    rows = {name: _written(called) for name, called in sorted(run.called.items())}
    why = {name: called.why for name, called in sorted(run.called.items()) if called.why}
    data = {"torch": run.torch, "mlx": sorted(run.mlx), "rows": rows, "why": why}
    path.write_text(json.dumps(data, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")


def ship(results: store.Results, path: Path = store.MEASURED) -> None:
    """The package's part, in one line; `torchdevice.catalog.store` tells its form."""
    groups: dict[str, dict[str, list[str]]] = {}
    for name, measured in sorted(results.measured.items()):
        ability = CAN if measured.plain else ABSENT if measured.absent else CANNOT
        owner, _, last = name.rpartition(".")
        groups.setdefault(f"{_letters(measured)} {ability} {measured.by}", {}).setdefault(owner, []).append(last)
    mlx: dict[str, dict[str, str]] = {}
    for name, (expression, confidence) in sorted(results.mlx.items()):
        mlx.setdefault(confidence, {})[name] = expression
    data: dict[str, Any] = {
        "torch": results.torch,
        "mlx": mlx,
        "rows": {code: {owner: " ".join(names) for owner, names in owners.items()} for code, owners in groups.items()},
        "why": {name: measured.why for name, measured in sorted(results.measured.items()) if measured.why},
    }
    path.write_text(json.dumps(data, separators=(",", ":"), ensure_ascii=False) + "\n", encoding="utf-8")


def _letters(row: Called | Measured) -> str:
    return "".join(row.outcomes.get(host, NONE)[0] for host in HOSTS)


def _written(called: Called) -> str:
    return "|".join((_letters(called), "y" if called.plain else "n", called.by, called.call))


def _read(text: str, why: dict[str, str]) -> Called:
    letters, plain, by, call = text.split("|", 3)
    outcomes = {host: _BY_LETTER[letter] for host, letter in zip(HOSTS, letters, strict=True)}
    return Called(by, call, plain == "y", outcomes, why)
