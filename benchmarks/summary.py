"""What records cost: a training step that asks for a device that is not here, counted for the line at the end.

The same step in plain torch (which is given the device that is here) and under everything that `torchdevice run` sets
up: in instructions, counted by callgrind, which do not depend on what else the machine does, and as ratios of processor
time in one run, interleaved. Needs valgrind for the first.

    OMP_NUM_THREADS=1 python benchmarks/summary.py [--layers 4] [--rounds 40] [--steps 5] [--limit 1.02]
"""

from __future__ import annotations

import argparse
import glob
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

STEP = """
import torch
from torch import nn

def training_step(device, layers):
    torch.manual_seed(0)
    width, words, batch, length = 128, 500, 4, 64
    blocks = [nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True, dropout=0.0) for _ in range(layers)]
    model = nn.ModuleList([nn.Embedding(words, width), *blocks, nn.Linear(width, words)]).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    batches = torch.randint(0, words, (batch, length))

    def step():
        tokens = batches.to(device, non_blocking=True)
        mask = torch.triu(torch.ones(length, length, dtype=torch.bool, device=device), 1)
        hidden = model[0](tokens)
        for block in blocks:
            position = torch.zeros(length, 1, device=device)
            hidden = block(hidden + position, src_mask=mask)
        loss = nn.functional.cross_entropy(model[-1](hidden).view(-1, words), tokens.view(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step
"""
COUNTED = (
    STEP
    + """
import sys
from torch._C import _valgrind_toggle, _valgrind_toggle_and_dump_stats
step = training_step(sys.argv[1], int(sys.argv[2]))
step(); step()
for _ in range(3):
    _valgrind_toggle(); step(); _valgrind_toggle_and_dump_stats()
"""
)
UNDER_RUN = {"TORCHDEVICE": "1", "TORCHDEVICE_REPORT": "summary"}  # what `torchdevice run` sets


def instructions(device: str, layers: int, settings: dict[str, str]) -> float:
    """Instructions of one step, in a process of its own."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TORCHDEVICE")} | settings
    with tempfile.TemporaryDirectory() as folder:
        out = f"{folder}/callgrind"
        command = ["valgrind", "--tool=callgrind", "--collect-atstart=no", f"--callgrind-out-file={out}"]
        program = [sys.executable, "-c", COUNTED, device, str(layers)]
        subprocess.run(
            [*command, *program], check=True, capture_output=True, env=environment | {"OMP_NUM_THREADS": "1"}
        )
        dumps = sorted(glob.glob(f"{out}.*"), key=lambda name: int(name.rpartition(".")[2]))[:3]
        found = [re.search(r"^(?:totals|summary): (\d+)", Path(dump).read_text(), re.M) for dump in dumps]
    return statistics.median(int(each[1]) for each in found if each is not None)


def seconds(step: Callable[[], None], steps: int) -> float:
    """The mean processor time of one step, which depends less on what else the machine does."""
    start = time.process_time()
    for _ in range(steps):
        step()
    return (time.process_time() - start) / steps


def ratios(layers: int, rounds: int, steps: int) -> tuple[list[float], int]:
    """Times of a counted step over those of a plain one in the same round, and calls counted a step."""
    import torchdevice

    space: dict[str, Callable[[str, int], Callable[[], None]]] = {}
    exec(STEP, space)
    plain = space["training_step"]("cpu", layers)
    with torchdevice.redirect(target="cpu"):
        counted = space["training_step"]("cuda", layers)
        counted()
        before = torchdevice.report().calls
        counted()
        calls = torchdevice.report().calls - before
    found = []
    for turn in range(rounds):
        times = {}
        for name in ("plain", "counted")[:: 1 if turn % 2 else -1]:
            if name == "plain":
                times[name] = seconds(plain, steps)
            else:
                with torchdevice.redirect(target="cpu"):
                    counted()  # places are found again by each activation
                    times[name] = seconds(counted, steps)
        found.append(times["counted"] / times["plain"])
    return found, calls


def main() -> int:
    """Print both; exit 1 if the count is beyond the limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--limit", type=float, default=1.02)
    options = parser.parse_args()
    plain = instructions("cpu", options.layers, {})
    counted = instructions("cuda", options.layers, UNDER_RUN)
    print(f"instructions a step: {plain:,.0f} plain, {counted:,.0f} counted: {counted / plain:.4f}")
    found, calls = ratios(options.layers, options.rounds, options.steps)
    low, middle, high = statistics.quantiles(found, n=4)
    print(f"processor time, {options.rounds} rounds of {options.steps} steps: {middle:.3f} ({low:.3f}–{high:.3f})")
    print(f"{calls} calls redirected and counted a step")
    return 0 if counted / plain <= options.limit else 1


if __name__ == "__main__":
    raise SystemExit(main())
