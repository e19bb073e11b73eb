"""Benchmarks: what TorchDevice costs on this machine, as ratios to plain torch. `torchdevice bench` runs them.

Each module beside this one answers one question in a process of its own (`python -m torchdevice.bench.steps`) and
prints its figures as rows; `BENCHMARKS` lists them. Wall time on shared machines lies, so everything is a ratio of
calls that alternate in one run, a number of instructions, or the time that the processor worked.
"""

from __future__ import annotations

from torchdevice.bench.runner import BENCHMARKS, Figure, interleaved

__all__ = ["BENCHMARKS", "Figure", "interleaved"]
