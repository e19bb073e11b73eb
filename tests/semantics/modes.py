"""The ways in which every program is run, beside plain torch on the CPU."""

from __future__ import annotations

import functools
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import ROOT
from tests.semantics import judging
from tests.virtual.harness import run_python

RUNNER = str(ROOT / "tests" / "semantics" / "runner.py")
DEVICES = {"cpu": (), "mps:real": ("--virtual", "mps:real"), "cuda": ("--virtual", "cuda")}
POLICIES = ("accelerate", "portable")


@dataclass(frozen=True)
class Mode:
    device: str
    policy: str

    def __str__(self) -> str:
        return f"{self.device}/{self.policy}"


MODES = [Mode(device, policy) for device in DEVICES for policy in POLICIES]


def returned_in(mode: Mode) -> dict[str, dict[str, object]]:
    """What the programs returned there, in one process."""
    run = ("-m", "torchdevice", "run", *DEVICES[mode.device], "--policy", mode.policy)
    return _returned(*run, RUNNER, "cuda")


@functools.cache
def returned_by_plain_torch() -> dict[str, dict[str, object]]:
    """What the judge returned. Programs whose values are written down are left out."""
    return _returned(RUNNER, "cpu")


def returned_on_a_gpu(*command: str) -> dict[str, dict[str, object]]:
    """What they returned on the real GPU, run by plain Python or by the given command."""
    return _returned(*command, RUNNER, "cuda")


def _returned(*command: str) -> dict[str, dict[str, object]]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "returned.jsonl"
        done = run_python(*command, str(file))
        assert done.returncode == 0, f"{' '.join(command)}: exit {done.returncode}\n{done.stderr[-4000:]}"
        return judging.read(file)
