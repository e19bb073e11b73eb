"""The versions of torch that are run, what is run on them, and the results that are kept."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).with_name("results.json")
PAGE = ROOT / "docs" / "versions.md"


@dataclass(frozen=True)
class Row:
    """A release of torch, and the Python that it is run with where one is at hand."""

    torch: str
    python: str = "3.11"


# The last release of each minor version.
ROWS = (
    Row("2.9.1"),
    Row("2.10.0", "3.10"),
    Row("2.11.0"),
    Row("2.12.1", "3.12"),
    Row("2.13.0"),
    Row("2.14.1", "3.13"),
    Row("2.15.0"),
)

SCRIPT = "examples/train_cuda.py"
# What somebody types who has just installed it.
COMMANDS = (
    *(("run", *options, SCRIPT) for options in ((), ("--virtual", "cuda"), ("--virtual", "cuda:2"))),
    *(("run", "--virtual", device, SCRIPT) for device in ("mps", "mps:real", "xpu")),
    ("doctor",),
)
# The suites that touch private names of torch, and those of packages that builds for CUDA bring along (Triton).
PRIVATE = (
    *("tests/answers", "tests/distributed", "tests/fallback", "tests/packages"),
    *("tests/policy", "tests/translate", "tests/virtual"),
)


@dataclass
class Result:
    """What one torch showed. `source`: a digest of the files that were run."""

    torch: str
    build: str
    python: str
    source: str
    date: str
    commands: dict[str, bool] = field(default_factory=dict)
    suites: str = "all"
    passed: int = 0
    failed: list[str] = field(default_factory=list)
    skipped: dict[str, int] = field(default_factory=dict)
    seconds: int = 0
    machine: str = "no GPU"

    @property
    def green(self) -> bool:
        """Whether everything worked."""
        return bool(self.commands) and all(self.commands.values()) and self.passed > 0 and not self.failed


def load(path: Path = RESULTS) -> dict[str, Result]:
    """The results so far, by what was run."""
    if not path.exists():
        return {}
    return {name: Result(**entry) for name, entry in json.loads(path.read_text(encoding="utf-8")).items()}


def in_order(results: dict[str, Result]) -> dict[str, Result]:
    """The same, in the order of the rows."""
    order = {row.torch: number for number, row in enumerate(ROWS)}
    return dict(sorted(results.items(), key=lambda item: (order.get(item[1].torch, len(order)), item[0])))


def save(results: dict[str, Result], path: Path = RESULTS) -> None:
    """Keep them."""
    text = json.dumps(
        {name: asdict(result) for name, result in in_order(results).items()}, indent=1, ensure_ascii=False
    )
    path.write_text(text + "\n", encoding="utf-8")
