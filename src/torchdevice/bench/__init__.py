"""Benchmarks: the overhead of TorchDevice on this machine, relative to plain torch. `torchdevice bench` runs them.

Each module of this package is one benchmark. It runs in its own process (`python -m torchdevice.bench.steps`) and
prints its figures as rows. `BENCHMARKS` lists the modules. Wall time varies on shared machines, so a figure is a ratio
of calls that alternate in one run, a number of instructions, or processor time.
"""

from __future__ import annotations

from torchdevice.bench.runner import BENCHMARKS, Figure, interleaved

__all__ = ["BENCHMARKS", "Figure", "interleaved"]
