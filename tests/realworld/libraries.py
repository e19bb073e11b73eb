"""Rows of the programs for trainers and model libraries: transformers, accelerate, lightning and its kin, diffusers."""

from __future__ import annotations

from tests.realworld.program import Program

PROGRAMS = (
    Program("accelerate_loop", ("accelerate",), on_cpu=(("Accelerator(", "Accelerator(cpu=True, "),), tolerance=1e-2),
)
# Packages that do not install beside the torch of constraints.txt, and why.
UNAVAILABLE: dict[str, str] = {}
