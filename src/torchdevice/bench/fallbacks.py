"""The overhead of a fallback on a virtual mps, without its copies and its computation, and relative to torch's own.

Measured are the time that the fallback kernel adds to the copies and the computation on the CPU; the time of the same
operators and of a small training step under `PYTORCH_ENABLE_MPS_FALLBACK=1` (torch's own C++ fallback, with its copies)
and under TorchDevice; the time of the same code on CPU tensors, and on a virtual mps that has all kernels, so that
nothing falls back; and the time with `mlx,cpu` relative to `cpu`. The child processes take turns. The best of all
rounds counts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torchdevice.bench.runner import Figure, emit, use_two_cpus

if TYPE_CHECKING:
    import torch

ADDED_US, SLOWER_WITH_MLX = 40, 1.10
OF_TORCH, OF_TORCH_WITH_COPIES = 0.85, 0.75
NATIVE = "(native)"
GAPLESS = "gapless"
WAYS = {
    "torch": {"PYTORCH_ENABLE_MPS_FALLBACK": "1"},
    "cpu": {},
    "mlx,cpu": {"TORCHDEVICE_FALLBACK": "mlx,cpu"},
    GAPLESS: {},
}
TAKE, BY_HAND = "take, 100 of 4096", "take by hand"
COPIES = "copies in a training step"
COMPUTED = "(on CPU tensors)"


def best(call: Callable[[], Any], seconds: float = 0.25) -> float:
    """Microseconds per call: the best of many short runs, because other work on the machine only adds time."""
    import torch

    call()
    started = time.perf_counter()
    call()
    batch = max(1, int(0.01 / max(time.perf_counter() - started, 1e-7)))
    found, until = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < until:
        started = time.perf_counter()
        for _ in range(batch):
            call()
        torch.accelerator.synchronize()
        found = min(found, (time.perf_counter() - started) / batch)
    return found * 1e6


def cases(torch: Any, device: str) -> dict[str, Callable[[], Any]]:
    torch.manual_seed(0)
    x, index = torch.randn(64, 64).to(device), torch.arange(100).to(device)
    symmetric = x @ x.T
    logits = torch.randn(50, 8, 20).log_softmax(2).to(device)
    targets, lengths, sizes = torch.randint(1, 20, (8, 10)).to(device), torch.full((8,), 50), torch.full((8,), 10)
    volume = torch.randn(1, 8, 9, 9, 9).to(device)
    pool = torch.nn.functional.adaptive_max_pool3d
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 27)).to(device)

    def step() -> None:
        out = net(x).reshape(1, 64, 3, 3, 3)
        (pool(out, (2, 2, 2)).sum() + torch.logspace(0, 1, 8, device=device).sum()).backward()

    return {
        TAKE: lambda: torch.take(x, index),
        "mode, 64×64": lambda: torch.mode(x),
        "eigh, 64×64": lambda: torch.linalg.eigh(symmetric),
        "ctc_loss, 50×8×20": lambda: torch.nn.functional.ctc_loss(logits, targets, lengths, sizes),
        "adaptive_max_pool3d": lambda: pool(volume, (4, 4, 4)),
        "training step with two gaps": step,
        "add (native)": lambda: torch.add(x, x),
        "mm (native)": lambda: torch.mm(x, x),
        "linear, guarded (native)": lambda: torch.nn.functional.linear(x, x),
    }


def taken_by_hand(x: torch.Tensor, index: torch.Tensor, on: str) -> Callable[[], torch.Tensor]:
    """`take` on the CPU with as few copies as possible: none if the memory is the host's, else into pinned memory."""
    import torch

    if on == "cpu":
        arguments = x.cpu(), index.cpu()
        return lambda: torch.take(*arguments)
    here = [torch.empty(each.shape, dtype=each.dtype, pin_memory=True) for each in (x, index)]

    def take() -> torch.Tensor:
        for to, each in zip(here, (x, index), strict=True):
            to.copy_(each, non_blocking=True)
        torch.accelerator.current_stream().synchronize()
        return torch.take(*here).to(x.device, non_blocking=True)

    return take


def measure(who: str, on: str) -> dict[str, float]:
    import torch

    import torchdevice
    import torchdevice.virtual

    use_two_cpus()
    torch.set_num_threads(1)
    torchdevice.virtual.install("mps", support="all" if who == GAPLESS else "real", on=on)
    if who not in ("torch", GAPLESS):
        torchdevice.activate(policy="portable")
    calls = cases(torch, "mps")
    figures = {name: best(call) for name, call in calls.items()}
    if who == GAPLESS:
        return figures
    if who == "torch":
        alone = cases(torch, "cpu")
        figures.update({f"{name} {COMPUTED}": best(call) for name, call in alone.items() if NATIVE not in name})
    torchdevice.virtual.reset_counts()
    calls["training step with two gaps"]()
    figures[COPIES] = torchdevice.virtual.counts().get("aten::copy_", 0)
    x, index = torch.randn(64, 64).to("mps"), torch.arange(100).to("mps")
    figures[BY_HAND] = best(taken_by_hand(x, index, on))
    return figures


def in_child(who: str, on: str) -> dict[str, float]:
    env = {**os.environ, "PYTORCH_ENABLE_MPS_FALLBACK": "0", "TORCHDEVICE_FALLBACK": "cpu", **WAYS[who]}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "torchdevice.bench.fallbacks", "--who", who, "--on", on],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def figures(best_of: dict[str, dict[str, float]], on: str = "cpu") -> list[Figure]:
    """The added time, the ratio to torch's own fallback, and the ratio of `mlx,cpu` to `cpu`."""
    theirs, ours, with_mlx, gapless = best_of.values()
    calls = [name for name in ours if name not in (BY_HAND, COPIES)]
    fallen = [name for name in calls if NATIVE not in name]
    rows = [Figure("a fallback, beyond its copies and its computation", ours[TAKE] - ours[BY_HAND], "µs", ADDED_US)]
    for name in calls:
        note = f"{ours[name]:.1f} µs, torch's own fallback {theirs[name]:.1f} µs"
        rows.append(Figure(f"{name}: ours / torch's fallback", ours[name] / theirs[name], note=note))

    def together(times: dict[str, float], kind: str = "") -> float:
        return sum(times[f"{name}{kind}"] for name in fallen) / sum(theirs[name] for name in fallen)

    copies = f"copies in the training step: ours {ours[COPIES]:.0f}, torch's {theirs[COPIES]:.0f}"
    limit = OF_TORCH if on == "cpu" else OF_TORCH_WITH_COPIES
    rows.append(Figure("all of them: ours / torch's fallback", together(ours), limit=limit, note=copies))
    rows.append(Figure("all of them: with all kernels / torch's fallback", together(gapless)))
    rows.append(Figure("all of them: on CPU tensors / torch's fallback", together(theirs, f" {COMPUTED}")))
    for name in fallen:
        rows.append(Figure(f"{name}: mlx,cpu / cpu", with_mlx[name] / ours[name], limit=SLOWER_WITH_MLX))
    return rows if on == "cpu" else [replace(row, what=f"{row.what}, on mps@{on}") for row in rows]


def main() -> None:
    """Rows on stdout."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--on", default="cpu", help="the device that backs the virtual mps")
    parser.add_argument("--who", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.who:
        print(json.dumps(measure(options.who, options.on)))
        return
    best_of: dict[str, dict[str, float]] = {who: {} for who in WAYS}
    for _ in range(1 if options.quick else 4):
        for who, found in best_of.items():
            for name, figure in in_child(who, options.on).items():
                found[name] = min(figure, found.get(name, figure))
    emit(figures(best_of, options.on))


if __name__ == "__main__":
    main()
