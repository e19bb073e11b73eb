"""Runs benchmarks, each in its own process, and builds one table of their figures.

`Figure` is one result of a benchmark. `interleaved` compares variants in alternating calls. Does not import torch.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

# Name → description. The order is that of the table.
BENCHMARKS = {
    "steps": "a training step, eager and compiled",
    "virtual-steps": "the same on a virtual device",
    "calls": "single calls, in instructions",
    "startup": "import, activation, memory",
    "threads": "a million redirected calls from 1, 2 and 8 threads",
    "loader": "an epoch of a DataLoader",
    "virtual": "operators on a virtual device",
    "backed": "a virtual device that an accelerator backs",
    "fallbacks": "operators that the target lacks",
    "answers": "functions of torch.cuda, torch.mps, torch.xpu",
    "packages": "attention by stand-ins for CUDA-only packages",
}


Timed = Callable[[], float]
AGAIN = "plain, a second time"  # plain torch relative to itself: the variation of the machine in every ratio of the run


@dataclass(frozen=True)
class Figure:
    """One measured value with its limit and its quartiles."""

    what: str
    value: float
    unit: str = "×"
    limit: float | None = None
    spread: tuple[float, float] | None = None
    note: str = ""

    @classmethod
    def of(cls, what: str, values: Sequence[float], **more: Any) -> Figure:
        """The median of several measurements with their quartiles. One measurement has none."""
        low, middle, high = statistics.quantiles(values, n=4) if len(values) > 1 else [values[0]] * 3
        return cls(what, middle, spread=(low, high) if len(values) > 1 else None, **more)

    @classmethod
    def from_json(cls, row: dict[str, Any]) -> Figure:
        """The reverse of `dataclasses.asdict`. JSON has turned the pair of quartiles into a list."""
        return cls(**{**row, "spread": tuple(row["spread"]) if row["spread"] else None})

    @property
    def kept(self) -> bool | None:
        """Whether the value is within the limit, in the printed precision. None without a limit."""
        return None if self.limit is None else round(self.value, self.digits) <= self.limit

    @property
    def digits(self) -> int:
        """The number of printed decimals. A limit of a few percent needs more than a number of microseconds."""
        return 3 if self.unit == "×" and self.limit is not None and 1 < self.limit < 1.1 else 2

    @property
    def limit_text(self) -> str:
        """The printed limit. Empty without a limit."""
        return "" if self.limit is None else f"{self.limit:g} {self.unit}".replace(" ×", "×")

    @property
    def mark(self) -> str:
        """Whether the value is within the limit, as one character."""
        return {True: "✓", False: "✗", None: ""}[self.kept]

    def __str__(self) -> str:
        spread = f" ({self.spread[0]:.{self.digits}f}–{self.spread[1]:.{self.digits}f})" if self.spread else ""
        return f"{self.value:.{self.digits}f}{spread} {self.unit}".replace(" ×", "×")


def interleaved(variants: dict[str, Timed], base: str, rounds: int) -> dict[str, tuple[float, tuple[float, float]]]:
    """Each variant's ratio to `base` within the same round: median and quartiles. The order rotates."""
    names = list(variants)
    measured: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            measured[name].append(variants[name]())
    found = {}
    for name in names:
        ratios = [one / plain for one, plain in zip(measured[name], measured[base], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        found[name] = (middle, (low, high))
    return found


def use_two_cpus() -> None:
    """Called by each of the processes that are compared. On a shared machine some CPUs are slower than others."""
    if sys.platform == "linux":
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])


def emit(figures: Iterable[Figure]) -> None:
    """Prints the figures to stdout, one JSON line per figure. The process of a benchmark sends its results this way."""
    for figure in figures:
        print(json.dumps(asdict(figure), ensure_ascii=False), flush=True)


def read(lines: Sequence[str]) -> list[Figure]:
    """Parses the output of `emit` and ignores other output of the process."""
    return [Figure.from_json(json.loads(line)) for line in lines if line.startswith('{"what"')]


SCHEMA = 1
# A benchmark's program is the module of its name, with these exceptions.
PROGRAMS = {"virtual-steps": ("steps", "--virtual", "cuda")}


@dataclass
class Results:
    """The figures per benchmark, and the reasons for missing ones."""

    machine: dict[str, str]
    figures: dict[str, list[Figure]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """JSON in a stable order, for `from_json`."""
        figures = {name: [asdict(figure) for figure in rows] for name, rows in self.figures.items()}
        return {"schema": SCHEMA, "machine": self.machine, "figures": figures, "missing": self.missing}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Results:
        """Parses the output of `as_json`."""
        figures = {name: [Figure.from_json(row) for row in rows] for name, rows in data["figures"].items()}
        return cls(data["machine"], figures, data["missing"])


def describe_machine() -> dict[str, str]:
    """The versions and the device that the figures depend on, without the name of the machine."""
    import torch

    accelerator = torch.accelerator.current_accelerator(check_available=True)
    device = "cpu" if accelerator is None else accelerator.type
    name = torch.cuda.get_device_name() if device == "cuda" else platform.machine()
    return {
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "device": f"{device} ({name})",
        "cores": str(os.cpu_count()),
    }


def run_one(name: str, quick: bool) -> tuple[list[Figure], str]:
    """The figures of a benchmark, or the last line of its error output."""
    module, *arguments = PROGRAMS.get(name, (name,))
    command = [sys.executable, "-W", "ignore", "-m", f"torchdevice.bench.{module}", *arguments]
    if quick:
        command.append("--quick")
    package = str(Path(__file__).resolve().parents[2])
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("TORCHDEVICE") or k == "TORCHDEVICE_CACHE"}
    path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    done = subprocess.run(command, env={**inherited, "PYTHONPATH": path}, capture_output=True, text=True, check=False)
    figures = read(done.stdout.splitlines())
    words = (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[-1]
    return figures, "" if done.returncode == 0 else words


def run(names: Sequence[str] = (), quick: bool = False, told: Callable[[str], None] | None = None) -> Results:
    """Runs `names` (default: every benchmark) one after another, because two at once would disturb each other."""
    results = Results(describe_machine())
    for name in names or BENCHMARKS:
        if told is not None:
            told(name)
        results.figures[name], reason = run_one(name, quick)
        if reason:
            results.missing[name] = reason
    return results
