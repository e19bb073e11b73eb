"""On a host with CUDA: programs for CUDA return under `run` what they return without it, on the same GPU."""

from __future__ import annotations

import functools

import pytest
import torch

import torchdevice.virtual
from tests.semantics import known
from tests.semantics.judging import same
from tests.semantics.modes import Mode, returned_on_a_gpu
from tests.semantics.program import every_program

pytestmark = [
    pytest.mark.accelerated,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torchdevice.virtual.installed() is not None,
        reason="needs a real GPU with CUDA",
    ),
]
RUNS = {"run": ("-m", "torchdevice", "run"), "run, portable": ("-m", "torchdevice", "run", "--policy", "portable")}


@functools.cache
def _plain() -> dict[str, dict[str, object]]:
    return returned_on_a_gpu()


def _differing(found: dict[str, dict[str, object]]) -> dict[str, str]:
    """Programs that returned or raised something else than in plain torch."""
    tolerances = {program.name: program.tolerance for program in every_program()}
    told = {}
    for name, wanted in _plain().items():
        got = found.get(name, {"raised": "the process ended"})
        kind = "raised" if "raised" in wanted else "returned"
        if kind not in got or not same(wanted[kind], got[kind], tolerances[name]):
            told[name] = f"wanted {wanted[kind]}, got {got.get('returned', got.get('raised'))}"
    return told


@pytest.mark.parametrize("name", RUNS)
def test_every_program_returns_what_it_returns_in_plain_torch(name: str) -> None:
    unsteady = _differing(returned_on_a_gpu())  # in plain torch too
    excused = unsteady.keys() | known.reasons(Mode("cuda", "portable")).keys()
    told = {each: what for each, what in _differing(returned_on_a_gpu(*RUNS[name])).items() if each not in excused}
    assert not told, f"{len(told)} of {len(_plain())} differ:\n" + "\n".join(map(": ".join, told.items()))
    assert len(unsteady) < len(_plain()) / 100
