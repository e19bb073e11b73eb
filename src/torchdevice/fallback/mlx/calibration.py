"""Measures each MLX rule against the CPU at several sizes, for `torchdevice calibrate`. Prints nothing.

The arguments are derived from the operator's schema; exceptions are in a table.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from torchdevice._torch import core, dispatcher
from torchdevice._torch.core import RealDevice, RealTensor
from torchdevice.fallback import cpu
from torchdevice.fallback.mlx import executor
from torchdevice.fallback.mlx.costs import SCHEMA, device_kind, versions
from torchdevice.fallback.mlx.executor import Rule
from torchdevice.fallback.plan import Declined, Plan, read_plan

Arguments = tuple[Any, ...]

# By name of the argument. Arguments that are not listed and have a default are omitted.
_BY_NAME: dict[str, Any] = {
    "dim": 0,
    "half_to_float": False,
    "correction": 1,
    "k": 8,
    "dims": [0],
    "shifts": [1],
    "repeats": [1, 2],
    "normalization": 0,
    "forward": True,
    "onesided": True,
    "threshold": 0.5,
    "compute_v": True,
}


def _index(x: torch.Tensor) -> torch.Tensor:
    return torch.arange(x.shape[0]).flip(0)


def _positive(x: torch.Tensor) -> torch.Tensor:
    return x @ x.T + x.shape[0] * torch.eye(x.shape[0])


def _cubed(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(4, x.shape[0] // 2, -1)[:, : x.shape[0] // 2, : x.shape[0] // 2].contiguous()


# `x` is square, of float32 (of int64 for operators of integers), between 0.5 and 1.5.
_WRITTEN: dict[str, Callable[[torch.Tensor], Arguments]] = {
    "bmm": lambda x: (_cubed(x), _cubed(x)),
    "baddbmm": lambda x: (_cubed(x), _cubed(x), _cubed(x)),
    "addbmm": lambda x: (_cubed(x)[0], _cubed(x), _cubed(x)),
    "mv": lambda x: (x, x[0]),
    "addmv": lambda x: (x[0], x, x[0]),
    "addr": lambda x: (x, x[0], x[0]),
    "dot": lambda x: (x.reshape(-1), x.reshape(-1)),
    "convolution": lambda x: (x[None, None], torch.ones(4, 1, 3, 3), None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1),
    "native_layer_norm": lambda x: (x, [x.shape[1]], x[0], x[0], 1e-5),
    "gather": lambda x: (x, 0, _index(x)[:, None].expand_as(x).contiguous()),
    "scatter.src": lambda x: (x, 0, _index(x)[:, None].expand_as(x).contiguous(), x),
    "index_select": lambda x: (x, 0, _index(x)),
    "take": lambda x: (x, _index(x)),
    "embedding": lambda x: (x, _index(x)),
    "masked_fill.Scalar": lambda x: (x, x > 1, 0.0),
    "where.self": lambda x: (x > 1, x, x),
    "_fft_c2c": lambda x: (torch.complex(x, x), [0], 0, True),
    "_fft_r2c": lambda x: (x, [0], 0, True),
    "linalg_inv_ex": lambda x: (_positive(x),),
    "linalg_cholesky_ex": lambda x: (_positive(x),),
    "_linalg_eigh": lambda x: (_positive(x),),
    "_linalg_svd": lambda x: (x, True),
    "cat": lambda x: ([x, x],),
    "stack": lambda x: ([x, x],),
    "clamp": lambda x: (x, 1),
    "lerp.Scalar": lambda x: (x, x, 0.5),
    "lerp.Tensor": lambda x: (x, x, x),
}


def example(plan: Plan, rule: Rule, elements: int) -> Arguments:
    """Positional arguments on the CPU. The first tensor has about `elements` elements."""
    side = max(8, math.isqrt(elements) // 8 * 8)
    generator = core.RealGenerator("cpu").manual_seed(0)
    x = torch.rand(side, side, generator=generator) + 0.5
    if torch.float32 not in rule.dtypes:
        x = (x * 100).to(torch.int64)
    written = _WRITTEN.get(plan.name.removeprefix("aten::"))
    if written is not None:
        return written(x)
    given: list[Any] = []
    for argument in dispatcher.schema_of(plan.operator).arguments:
        kind = str(argument.type)
        if argument.kwarg_only:
            break
        if "Tensor" in kind:
            given.append(x)
        elif argument.has_default_value():
            break
        elif argument.name in _BY_NAME:
            value = _BY_NAME[argument.name]
            given.append([value] if kind.startswith(("List[", "Optional[List[")) and value == 0 else value)
        else:
            given.append(1)
    return tuple(given)


SIZES = (1 << 10, 1 << 13, 1 << 16, 1 << 19, 1 << 22)
# An operator whose work grows faster than its size would take minutes at the largest size.
LARGEST = {"decomposition": 1 << 16, "product": 1 << 20}
# MLX must be faster by this factor to be chosen, because measurements vary.
MARGIN = 0.9
_LEAST_CALLS = 3


@dataclass(frozen=True)
class Measurement:
    """One operator at one size: microseconds of a whole fallback, including copies."""

    operator: str
    elements: int
    mlx: float
    cpu: float


def jobs(operators: Iterable[str], sizes: Iterable[int] = SIZES) -> list[tuple[str, int]]:
    """The pairs of operator and size to measure."""
    rules = executor.rules()
    return [(name, size) for name in operators for size in sizes if size <= LARGEST.get(rules[name].kind, size)]


def measure(work: Iterable[tuple[str, int]], target: str, seconds: float) -> Iterator[Measurement | None]:
    """Each job with both executors, on tensors of the target; None for a call that the rule declines."""
    rules = executor.rules()
    for name, size in work:
        plan, rule = read_plan(name), rules[name]
        assert plan is not None  # every operator with a rule has one
        args = tuple(_on(value, target) for value in example(plan, rule, size))
        try:
            theirs = _best(partial(executor.apply, rule, plan, args, {}, target), seconds)
        except Declined:
            yield None
            continue
        ours = _best(partial(cpu.run, plan, args, {}, target), seconds)
        yield Measurement(name, sum(t.numel() for t in executor.tensors_of(args)), theirs, ours)


def pays_from(measured: Iterable[Measurement]) -> dict[str, int | None]:
    """Operator → the smallest size from which MLX was faster at every measured size; None: never."""
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
    """The table in its stored form."""
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
    """Microseconds of the fastest call within the time, because other load on the machine only adds time."""
    call()
    times: list[float] = []
    until = time.perf_counter() + seconds
    while len(times) < _LEAST_CALLS or time.perf_counter() < until:
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return min(times) * 1e6
