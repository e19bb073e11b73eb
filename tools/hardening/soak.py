"""Mixed work for a long time: training, redirections from many threads, activation cycles, fallbacks, reports.

    python -m tools.hardening.soak [SECONDS]        (30 minutes by default; `make soak`)

Memory and the time of a round must stay flat. Runs on a virtual mps as a Mac has it, so that fallbacks happen.
"""

from __future__ import annotations

import contextlib
import gc
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import psutil
import torch
from torch import nn

import torchdevice
import torchdevice.virtual
from tools.hardening import figures

THREADS = 8
WARM_UP_ROUNDS = 5
LONG = 1800.0  # what is shorter is no figure to show


@dataclass
class Course:
    """What was seen, round by round."""

    seconds: list[float] = field(default_factory=list)
    megabytes: list[float] = field(default_factory=list)
    redirected: int = 0
    fallbacks: int = 0
    cycles: int = 0

    def growth(self) -> float:
        """Megabytes between the first and the last third, after the warm-up."""
        kept = self.megabytes[WARM_UP_ROUNDS:]
        third = max(1, len(kept) // 3)
        return statistics.median(kept[-third:]) - statistics.median(kept[:third])

    def slowing(self) -> float:
        """The last third's time of a round, over that of the first."""
        kept = self.seconds[WARM_UP_ROUNDS:]
        third = max(1, len(kept) // 3)
        return statistics.median(kept[-third:]) / statistics.median(kept[:third])


def train(steps: int = 4) -> None:
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    scaler = torch.cuda.amp.GradScaler()
    for _ in range(steps):
        x, y = torch.randn(8, 16, device="cuda"), torch.randint(0, 4, (8,), device="cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def fall_back() -> None:
    x = torch.randn(6, 6, device="cuda")
    torch.linalg.eigh(x @ x.T)
    torch.mode(x)
    torch.take(x, torch.arange(3, device="cuda"))


def redirect_from_threads(calls: int = 200) -> None:
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(calls):
                with torchdevice.cpu_override() if calls % 2 else contextlib.nullcontext():
                    if torch.empty(1, device="cuda").device.type != "mps":
                        raise AssertionError("a tensor on the wrong device")
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=work) for _ in range(THREADS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if errors:
        raise errors[0]


def rounds(seconds: float) -> Iterator[int]:
    until, number = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        yield number
        number += 1


def run(seconds: float) -> Course:
    course, process = Course(), psutil.Process()
    for _ in rounds(seconds):
        started = time.process_time()
        with torchdevice.redirect(target="mps", policy="portable"):
            train()
            fall_back()
            redirect_from_threads()
            report = torchdevice.report()
            str(report)
            course.redirected = torchdevice.status().redirected_calls
            course.fallbacks = sum(row.calls for row in report.fallbacks)
        course.cycles += 1
        gc.collect()
        course.seconds.append(time.process_time() - started)
        course.megabytes.append(process.memory_info().rss / 1e6)
    return course


def main() -> None:
    import warnings

    warnings.simplefilter("ignore")
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else LONG
    torchdevice.virtual.install("mps", support="real")
    course = run(seconds)
    print(
        f"{course.cycles} rounds in {seconds:.0f} s: memory {course.growth():+.1f} MB, "
        f"time of a round {course.slowing():.2f}× that of the beginning"
    )
    if seconds >= LONG:
        figures.record(
            "soak",
            minutes=seconds / 60,
            rounds=course.cycles,
            redirected=course.redirected,
            fallbacks=course.fallbacks,
            growth=course.growth(),
            slowing=course.slowing(),
        )
    # Within seconds, other work on the machine changes the time of a round more than a leak would.
    if course.growth() > 20 or (seconds >= LONG and course.slowing() > 1.3):
        raise SystemExit("not flat")


if __name__ == "__main__":
    main()
