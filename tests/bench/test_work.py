"""Steps, fallbacks, virtual operators and activation must not do more work than before.

Work is counted, not timed, and therefore the same on every machine: the calls of Python functions and functions in C,
and the operators that torch dispatches. Plain torch is counted in the same test. `test_calls` counts instructions of
single calls, where valgrind is installed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch

import torchdevice
from tests.bench.test_calls import versions
from tests.torches import BUILT_FOR_CUDA
from tests.virtual.harness import on
from torchdevice.bench.steps import training_step
from torchdevice.profiling import _rows, _typed
from torchdevice.virtual.build import OPERATOR_TIMES, load

BASELINE = Path(__file__).with_name("work.json")
RECORDED = json.loads(BASELINE.read_text(encoding="utf-8"))
recorded = pytest.mark.skipif(
    versions() != RECORDED["versions"] or BUILT_FOR_CUDA is not None,
    reason=f"compares with what was recorded with {RECORDED['versions']}, built without CUDA",
)
TOLERATED = 1.15
LAYERS = 2
CPU = torch.device("cpu")


def python_calls(work: Callable[[], object]) -> int:
    """Calls in this thread: of Python functions, and from Python of functions in C."""
    found = 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal found
        found += event in ("call", "c_call")

    work()  # the first call at a place does more
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return found


def operators(work: Callable[[], object]) -> int:
    """Operators that torch dispatches, in all threads."""
    timer = _typed(load(OPERATOR_TIMES))

    def calls() -> int:
        return sum(int(row[2]) for row in _rows(timer.td_observed()))

    work()
    timer.td_observe()
    before = calls()
    work()
    timer.td_observe_stop()
    return calls() - before


def too_much(name: str, measured: float) -> str:
    """Empty if `measured` is within the tolerance of the baseline."""
    allowed = RECORDED["work"][name] * TOLERATED
    return f"{name}: {measured:.3f} instead of at most {allowed:.3f}" if measured > allowed else ""


def check(name: str, measured: float) -> None:
    complaint = too_much(name, measured)
    assert not complaint, f"{complaint}. If that is intended, change {BASELINE.name}"


@recorded
@on("")
def test_a_step_and_an_activation() -> None:
    plain = python_calls(training_step(CPU, LAYERS))

    def activate() -> None:
        with torchdevice.redirect(target="cpu"):
            pass

    check("activation: Python calls", python_calls(activate))
    with torchdevice.redirect(target="cpu"):
        check("step: Python calls", python_calls(training_step(CPU, LAYERS, spelled="cuda")) / plain)


@recorded
@on("cuda")
def test_a_step_on_a_virtual_device() -> None:
    device = torch.device("cuda")
    plain, ours = training_step(CPU, LAYERS), training_step(device, LAYERS)
    check("step on virtual cuda: operators", operators(ours) / operators(plain))
    check("step on virtual cuda: Python calls", python_calls(ours) / python_calls(plain))


@recorded
@on("mps:real")
def test_fallbacks() -> None:
    def work(x: torch.Tensor) -> Callable[[], object]:
        places = torch.arange(4, device=x.device)
        return lambda: [torch.take(x, places) for _ in range(20)] and torch.linalg.eigh(x)

    plain = work(torch.ones(4, 4))
    torchdevice.activate(policy="portable")
    ours = work(torch.ones(4, 4, device="mps"))
    check("fallbacks: Python calls", python_calls(ours) / python_calls(plain))
    check("fallbacks: operators", operators(ours) / operators(plain))
    assert {row.operator for row in torchdevice.report().fallbacks} >= {"aten::take", "aten::_linalg_eigh"}


@pytest.mark.parametrize("name", RECORDED["work"])
def test_more_work_is_found(name: str) -> None:
    assert not too_much(name, RECORDED["work"][name])
    assert too_much(name, RECORDED["work"][name] * 1.2)
