"""Measures each MLX rule against the CPU at several sizes: the work of `torchdevice calibrate`. Prints nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from torchdevice.compat import RealDevice, RealTensor
from torchdevice.fallback import cpu
from torchdevice.fallback.declined import Declined
from torchdevice.fallback.mlx import executor
from torchdevice.fallback.mlx.costs import SCHEMA, device_kind, versions
from torchdevice.fallback.mlx.examples import example
from torchdevice.fallback.schema import read_plan

SIZES = (1 << 10, 1 << 13, 1 << 16, 1 << 19, 1 << 22)
# An operator whose work grows faster than its size would take minutes at the largest.
LARGEST = {"decomposition": 1 << 16, "product": 1 << 20}
# MLX must be this much faster before it is chosen: a measurement is not a promise.
MARGIN = 0.9
_LEAST_CALLS = 3


@dataclass(frozen=True)
class Measurement:
    """One operator at one size: microseconds of a whole fallback, crossings included."""

    operator: str
    elements: int
    mlx: float
    cpu: float


def jobs(operators: Iterable[str], sizes: Iterable[int] = SIZES) -> list[tuple[str, int]]:
    """What there is to measure."""
    rules = executor.rules()
    return [(name, size) for name in operators for size in sizes if size <= LARGEST.get(rules[name].kind, size)]


def measure(work: Iterable[tuple[str, int]], target: str, seconds: float) -> Iterator[Measurement | None]:
    """Each job with both executors, on tensors of the target; None for a call that the rule declines."""
    rules = executor.rules()
    for name, size in work:
        plan, rule = read_plan(name), rules[name]
        assert plan is not None  # every rule is of an operator that has one
        args = tuple(_on(value, target) for value in example(plan, rule, size))
        try:
            theirs = _best(partial(executor.apply, rule, plan, args, {}, target), seconds)
        except Declined:
            yield None
            continue
        ours = _best(partial(cpu.run, plan, args, {}, target), seconds)
        yield Measurement(name, sum(t.numel() for t in executor.tensors_of(args)), theirs, ours)


def pays_from(measured: Iterable[Measurement]) -> dict[str, int | None]:
    """Operator → the smallest measured size from which MLX was faster at every larger one; None: at none."""
    by_operator: dict[str, list[Measurement]] = {}
    for each in measured:
        by_operator.setdefault(each.operator, []).append(each)
    found: dict[str, int | None] = {}
    for name, rows in by_operator.items():
        least = None
        for row in sorted(rows, key=lambda row: -row.elements):
            if row.mlx > MARGIN * row.cpu:
                break
            least = row.elements
        found[name] = least
    return found


def as_table(measured: Iterable[Measurement], target: str) -> dict[str, Any]:
    """The table as it is kept."""
    rows = list(measured)
    return {
        "schema": SCHEMA,
        "device": device_kind(),
        "target": target,
        "versions": versions(),
        "pays_from": pays_from(rows),
        "measured": [
            {"operator": row.operator, "elements": row.elements, "mlx_us": row.mlx, "cpu_us": row.cpu} for row in rows
        ],
    }


def _on(value: Any, target: str) -> Any:
    if isinstance(value, RealTensor):
        return torch.ops.aten._to_copy.default(value, device=RealDevice(target)) if target != "cpu" else value
    return [_on(item, target) for item in value] if isinstance(value, list) else value


def _best(call: Callable[[], Any], seconds: float) -> float:
    """Microseconds of the fastest call within the time: other work on the machine only adds."""
    call()
    times: list[float] = []
    until = time.perf_counter() + seconds
    while len(times) < _LEAST_CALLS or time.perf_counter() < until:
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return min(times) * 1e6
