"""Benchmarks: what TorchDevice costs on this machine, as ratios to plain torch. `torchdevice bench` runs them.

Each module beside this one answers one question in a process of its own (`python -m torchdevice.bench.steps`) and
prints its figures as rows; `BENCHMARKS` lists them. Wall time on shared machines lies, so everything is a ratio of
calls that alternate in one run, a number of instructions, or the time that the processor worked.
"""

from __future__ import annotations

from torchdevice.bench.figures import Figure, interleaved

__all__ = ["BENCHMARKS", "Figure", "interleaved"]

# Name → what it measures. The order is that of the table.
BENCHMARKS = {
    "steps": "a training step, eager and compiled",
    "virtual-steps": "the same on a virtual device",
    "calls": "single calls, in instructions",
    "startup": "import, activation, memory",
    "threads": "a million redirected calls from 1, 2 and 8 threads",
    "loader": "an epoch of a DataLoader",
    "virtual": "operators on a virtual device",
    "fallbacks": "operators that the target lacks",
}
