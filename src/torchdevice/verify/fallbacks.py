"""Operators that the device lacks run under TorchDevice and give the CPU's values; and what a fallback costs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import torch

from torchdevice import fallback
from torchdevice._torch.samples import map_leaves
from torchdevice.bench.fallbacks import best
from torchdevice.fallback.mlx import calibration, executor
from torchdevice.policy.dtypes import dtype_on
from torchdevice.verify.findings import Check, Differs, Result, Skipped, in_one_line
from torchdevice.verify.operators import database, difference, has_values, name_of
from torchdevice.verify.samples import copied, has_gradient, on_cpu, outcome, samples_of
from torchdevice.verify.setting import Setting

SAMPLES = 6
MLX_SECONDS = 0.005
MLX_SIZES = (1 << 13, 1 << 16)
_ENDINGS = ("_backward", "_forward", "_ex", "_with_indices")


def checks(setting: Setting) -> Iterator[Check]:
    """Each entry of the database that is named after an operator without a kernel, then the cost."""
    lacking = lacking_operators()
    if not lacking:
        raise Skipped(f"{setting.kind} has a kernel for every operator")
    stems = {stem_of(name) for name in lacking}
    for op in database():
        if stems & {stem_of(op.name), stem_of(op.aten_name or op.name)} and torch.float32 in op.supported_dtypes("cpu"):
            yield Check(name_of(op, torch.float32), partial(compare, op, setting.kind))
    yield Check("cost of a fallback", partial(cost, setting.kind))
    yield Check("MLX against the CPU", partial(mlx_against_cpu, setting.kind))


def lacking_operators() -> list[str]:
    """The operators that fall back in this session, as `torchdevice ops` lists them."""
    return [name for name, route in fallback.matrix().rows.items() if route in ("cpu", "mlx")]


def stem_of(name: str) -> str:
    """The name of a function without what kernels add: `aten::_linalg_eigh.eigenvalues` → `linalg_eigh`."""
    stem = name.removeprefix("aten::").removeprefix("nn.functional.").replace(".", "_" if "::" not in name else ".")
    stem = stem.partition(".")[0].strip("_")
    for ending in _ENDINGS:
        stem = stem.removesuffix(ending)
    return stem


def compare(op: Any, kind: str) -> Result:
    """Samples under TorchDevice against the CPU, and which operators fell back for them."""
    fallback.clear()
    wants_gradient = has_gradient(op, torch.float32)
    ran = 0
    for number, sample in enumerate(samples_of(op, torch.float32, wants_gradient, SAMPLES)):
        expected = on_cpu(op, sample, wants_gradient)
        if expected is None:
            continue
        ran += 1
        try:
            actual = outcome(op, copied(op, sample, kind), wants_gradient, sample.output_process_fn_grad)
        except Exception as error:  # any error is a fallback that did not work
            raise Differs(f"sample {number} raised {type(error).__name__}: {in_one_line(str(error))}") from error
        expected = map_leaves(partial(_as_there, kind), expected)
        if text := difference(sample, expected, actual, kind, has_values(op, torch.float32)):
            raise Differs(f"sample {number}: {text}")
    fell_back = sorted({record.operator for record in fallback.totals()})
    figures = {"samples": ran, "fell_back": fell_back, "microseconds": _microseconds(fell_back)}
    return Result(f"{ran} samples; fell back: {', '.join(fell_back) or 'nothing'}", figures)


def _as_there(kind: str, value: Any) -> Any:
    """The CPU's result in the dtype that the device has: float64 is narrowed there, by decision."""
    return value.detach().to(dtype_on(kind, value.dtype)) if isinstance(value, torch.Tensor) else value


def _microseconds(operators: Iterable[str]) -> dict[str, float]:
    """Per operator, the mean of its calls, with copies."""
    found = {}
    for name in operators:
        figures = [totals for record, totals in fallback.totals().items() if record.operator == name]
        calls = sum(each.calls for each in figures)
        found[name] = round(sum(each.seconds for each in figures) / max(calls, 1) * 1e6, 1)
    return found


def cost(kind: str) -> Result:
    """The time of operators without a kernel on the device, and on the CPU alone."""
    square = torch.rand(64, 64, generator=torch.Generator().manual_seed(0))
    symmetric = square @ square.T
    rows = {
        "aten::mode": lambda x: torch.mode(x),
        "aten::_linalg_eigh": lambda x: torch.linalg.eigh(x),
        "aten::take": lambda x: torch.take(x, torch.arange(100, device=x.device)),
        "aten::histc": lambda x: torch.histc(x, 10),
        "aten::geqrf": lambda x: torch.geqrf(x),
    }
    lacking = lacking_operators()
    figures = {}
    for name, call in rows.items():
        if name in lacking:
            there = symmetric.to(kind)
            figures[name] = {"fallback": best(partial(call, there)), "cpu": best(partial(call, symmetric))}
    if not figures:
        raise Skipped(f"{kind} has a kernel for each of {', '.join(rows)}")
    told = [f"{name} {us['fallback']:.0f} µs (CPU alone {us['cpu']:.0f} µs)" for name, us in figures.items()]
    return Result(", ".join(told), {"microseconds": figures})


def mlx_against_cpu(kind: str) -> Result:
    """A short form of `torchdevice calibrate`: for how many operators MLX is the faster way."""
    if not executor.installed():
        raise Skipped("MLX is not installed")
    lacking = set(lacking_operators())
    work = calibration.jobs((name for name in sorted(executor.rules()) if name in lacking), MLX_SIZES)
    measured = [row for row in calibration.measure(work, kind, MLX_SECONDS) if row is not None]
    table = calibration.as_table(measured, kind)["pays_from"]
    faster = sorted(name for name, least in table.items() if least is not None)
    return Result(f"faster for {len(faster)} of {len(table)} operators", {"pays_from": table})
