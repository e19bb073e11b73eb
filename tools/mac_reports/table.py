"""The reports, the bugs that give wrong values, and the outcomes that are kept."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "mac_reports"
REPORTS = DATA / "reports.json"
WRONG_VALUES = DATA / "wrong_values.json"
REASONS = DATA / "reasons.json"  # id → why the program does not run with TorchDevice
RESULTS = Path(__file__).parent / "results.json"
KINDS = (
    "operator missing",
    "dtype",
    "API of torch.cuda",
    "device check",
    "crash",
    "hang",
    "memory",
    "wrong value",
)
# Of these a virtual device shows nothing: its values are the CPU's, and no Metal kernel runs.
OF_METAL = ("crash", "hang", "memory", "wrong value")
NOT_SAID = "not said"


@dataclass(frozen=True)
class Report:
    """A thread in which somebody tells what failed on a Mac. `error` is in the words of the thread."""

    id: str
    link: str
    torch: str  # the version that the person had
    kind: str
    title: str
    error: str
    fixed: str  # the release of torch that the thread names, or what it says of a fix

    @property
    def program(self) -> Path:
        """What the person ran, in calls of torch; written by us."""
        return DATA / "programs" / f"{self.id}.py"


@dataclass(frozen=True)
class WrongValue:
    """A bug of MPS that gives wrong values and no error. `since` and `fixed` as the thread has them."""

    id: str
    link: str
    since: str
    fixed: str
    condition: str
    remedy: str


@dataclass(frozen=True)
class Outcome:
    """The last line of the error of a program, "" if it ran to its end: on plain torch, and with TorchDevice."""

    plain: str
    ours: str


@dataclass(frozen=True)
class Results:
    """Of one run of all programs."""

    torch: str
    date: str
    outcomes: dict[str, Outcome]


def reports() -> list[Report]:
    """In the order of the file."""
    return [Report(**row) for row in json.loads(REPORTS.read_text(encoding="utf-8"))]


def wrong_values() -> list[WrongValue]:
    """In the order of the file."""
    return [WrongValue(**row) for row in json.loads(WRONG_VALUES.read_text(encoding="utf-8"))]


def reasons() -> dict[str, str]:
    """Why programs do not run with TorchDevice."""
    return dict(json.loads(REASONS.read_text(encoding="utf-8")))


def load() -> Results:
    """What was kept."""
    kept = json.loads(RESULTS.read_text(encoding="utf-8"))
    return Results(**{**kept, "outcomes": {name: Outcome(**told) for name, told in kept["outcomes"].items()}})


def save(results: Results) -> None:
    """For the page and the tests."""
    RESULTS.write_text(json.dumps(asdict(results), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
