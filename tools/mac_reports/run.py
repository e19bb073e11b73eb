"""Every program of a report on a virtual Mac, on plain torch and with TorchDevice; then docs/mac.md.

    python -m tools.mac_reports.run                 all of them
    python -m tools.mac_reports.run eigh stft       some: tells their outcomes and keeps nothing

Exit status 1 if a program without a reason does not run, or one with a reason does.
"""

from __future__ import annotations

import datetime
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version

from tools.conformance.run import run_worker
from tools.mac_reports import table
from tools.mac_reports.page import write_page
from tools.mac_reports.table import Outcome, Results
from tools.mac_reports.worker import PLAIN

MODULE = "tools.mac_reports.worker"
ON_PLAIN_TORCH = (sys.executable, "-m", MODULE, PLAIN)
# What `run` chooses by itself for a program that names an accelerator, as all of these do.
WITH_TORCHDEVICE = (
    sys.executable, "-m", "torchdevice", "run", "--virtual", "mps:real", "--policy", "portable", "-q", "-m", MODULE,
)  # fmt: skip


def errors(command: tuple[str, ...], names: list[str]) -> dict[str, str]:
    """Of every program, "" for those that ran to their end."""
    return {row["op"]: row["error"] for row in run_worker(list(command), names)}


def run(names: list[str]) -> dict[str, Outcome]:
    """Both ways, at once."""
    os.environ["OMP_NUM_THREADS"] = "1"
    with ThreadPoolExecutor(2) as pool:
        plain, ours = pool.map(lambda command: errors(command, names), (ON_PLAIN_TORCH, WITH_TORCHDEVICE))
    return {name: Outcome(plain[name], ours[name]) for name in names}


def surprises(outcomes: dict[str, Outcome], known: dict[str, str]) -> list[str]:
    """Programs that do not run and have no reason, and those that run in spite of one."""
    told = [f"{name}: {found.ours}" for name, found in outcomes.items() if found.ours and name not in known]
    ran = [name for name, found in outcomes.items() if not found.ours and name in known]
    return told + [f"{name} runs, and should not: {known[name]}" for name in ran]


def main(some: list[str]) -> int:
    """A line per surprise."""
    outcomes = run(some or [report.id for report in table.reports()])
    if some:
        for name, found in outcomes.items():
            print(f"{name}\n  plain: {found.plain or 'runs'}\n  ours:  {found.ours or 'runs'}")
    else:
        today = datetime.datetime.now(tz=datetime.timezone.utc).date().isoformat()
        table.save(Results(version("torch"), today, outcomes))
        write_page()
    told = surprises(outcomes, table.reasons())
    print("\n".join(told) if told else f"{len(outcomes)} programs: as expected")
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
