"""Runs benchmarks, each in a process of its own, and makes one table of their figures. Measures nothing itself."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torchdevice.bench import BENCHMARKS
from torchdevice.bench.figures import Figure, read

SCHEMA = 1
# A benchmark's program is the module of its name, but for these.
PROGRAMS = {"virtual-steps": ("steps", "--virtual", "cuda")}


@dataclass
class Results:
    """Figures by benchmark, and why a benchmark has none."""

    machine: dict[str, str]
    figures: dict[str, list[Figure]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Stable order; `from_json` reads it."""
        figures = {name: [asdict(figure) for figure in rows] for name, rows in self.figures.items()}
        return {"schema": SCHEMA, "machine": self.machine, "figures": figures, "missing": self.missing}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Results:
        """What `as_json` gave."""
        figures = {name: [Figure.from_json(row) for row in rows] for name, rows in data["figures"].items()}
        return cls(data["machine"], figures, data["missing"])


def describe_machine() -> dict[str, str]:
    """What figures depend on, without naming the machine."""
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
    """A benchmark's figures, or the last line that it said about why there are none."""
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
    """All of `names` (or every benchmark), one after another: two at once would measure each other."""
    results = Results(describe_machine())
    for name in names or BENCHMARKS:
        if told is not None:
            told(name)
        results.figures[name], reason = run_one(name, quick)
        if reason:
            results.missing[name] = reason
    return results
