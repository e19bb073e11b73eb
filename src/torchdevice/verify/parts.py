"""The parts of a run, in their order. Each names a module of this package whose `checks(setting)` lists its checks.

Does not import torch.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from torchdevice.verify.findings import AS, PLAIN, TRANSLATED


@dataclass(frozen=True)
class Part:
    """`share`: the part of the given minutes that it may take; 0 if all its checks always run.

    `seconds`: the time limit of one check, which includes the compilation of kernels on the device.
    """

    name: str
    asks: str
    module: str
    ways: tuple[str, ...] = (PLAIN,)
    share: float = 0.0
    seconds: float = 120


PARTS = (
    Part("coherence", "do names, copies, dtypes, views, seeds, files and gradients work as on the CPU", "coherence"),
    Part("answers", "are memory figures, events, streams and synchronize plausible", "answers", (PLAIN, TRANSLATED)),
    Part("wrong values", "which known bugs of MPS that give wrong values are present", "wrong_values"),
    Part(
        "steps",
        "does a training step give the CPU's losses: native, translated, with --as",
        "steps",
        (PLAIN, TRANSLATED, AS),
        seconds=400,  # `as` compiles the library of virtual devices first
    ),
    Part("fallbacks", "do operators that the device lacks fall back to right values", "fallbacks", (TRANSLATED,), 0.1),
    Part("refusals", "does the device refuse what TorchDevice predicts, and nothing else", "refusals", share=0.25),
    Part("operators", "do torch's sample inputs give the CPU's values and gradients", "operators", share=0.5),
)


def part_named(name: str) -> Part:
    """The row of that name."""
    return next(part for part in PARTS if part.name == name)


def place_in_order(check: str) -> bytes:
    """A fixed pseudo-random order, the same for every torch, so that a shorter run is a sample of a longer one."""
    return hashlib.sha256(check.encode()).digest()
