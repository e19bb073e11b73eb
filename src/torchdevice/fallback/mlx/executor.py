"""Runs a call on MLX if a rule gives the exact result and MLX is faster; declines with a reason otherwise.

Tensors are passed through CPU memory as DLPack, with one evaluation per operator. In-place, out= and view forms are
left to the CPU executor, because their cost is the copy and not the computation.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch

from torchdevice._torch.core import RealTensor
from torchdevice.fallback.cpu import Crossing
from torchdevice.fallback.mlx.costs import costs
from torchdevice.fallback.plan import FUNCTIONAL, Declined, Plan
from torchdevice.notices import warn

NAME = "mlx"
_FLOATS = frozenset({torch.float32, torch.float16, torch.bfloat16})
_INTEGERS = frozenset({torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8})
_NUMBERS = _FLOATS | _INTEGERS
_ANY = _NUMBERS | {torch.bool}


@dataclass(frozen=True)
class Rule:
    """One row: the expression, its kind (for the cost), the accepted dtypes, whether later tensors may differ."""

    expression: Any
    kind: str
    dtypes: frozenset[torch.dtype]
    mixed: bool = False


def installed() -> bool:
    """Whether MLX can be imported."""
    return find_spec("mlx") is not None


@cache
def rules() -> dict[str, Rule]:
    """Every rule by operator name (`aten::mm`); empty if the installed MLX cannot be imported."""
    try:
        from torchdevice.fallback.mlx import rules
    except ImportError as error:  # installed for another system or another Python
        warn(
            f"MLX is installed but cannot be imported ({error}), so operators that the device lacks run on the CPU. "
            "Hint: pip install --force-reinstall mlx, or set TORCHDEVICE_FALLBACK=cpu.",
            stacklevel=2,
        )
        return {}

    tables = (
        (rules.FLOAT_UNARY, "elementwise", _FLOATS, False),
        (rules.FLOAT_BINARY, "elementwise", _FLOATS, False),
        (rules.NUMBER, "elementwise", _NUMBERS, False),
        (rules.COMPARISON, "elementwise", _NUMBERS, False),
        (rules.INTEGER, "elementwise", _INTEGERS | {torch.bool}, False),
        (rules.REDUCTION, "reduction", frozenset({torch.float32}), False),
        (rules.PRODUCT, "product", frozenset({torch.float32}), False),
        (rules.ANY_DTYPE, "movement", _ANY - {torch.uint8}, False),
        (rules.INDEXED, "movement", _ANY, True),
        (rules.ORDER, "order", frozenset({torch.float32, torch.int32, torch.int64}), False),
        (rules.FOURIER, "fourier", frozenset({torch.float32, torch.complex64}), False),
        (rules.DECOMPOSITION, "decomposition", frozenset({torch.float32}), False),
    )
    return {
        f"aten::{name}": Rule(expression, kind, dtypes, mixed)
        for table, kind, dtypes, mixed in tables
        for name, expression in table.items()
    }


def never(operator: str) -> str | None:
    """Why MLX never runs this operator; None if it may run for some arguments."""
    rule = rules().get(operator)
    if rule is None:
        return "no rule"
    return "the CPU is faster" if costs().pays_from(operator, rule.kind) is None else None


def run(plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any], target_type: str) -> tuple[Any, int]:
    """Run the operator on MLX. Returns its results on the target, and the number of bytes copied."""
    rule = rules().get(plan.name)
    if rule is None:
        raise Declined("no rule")
    tensors = tensors_of(args) + tensors_of(tuple(kwargs.values()))
    least = costs().pays_from(plan.name, rule.kind)
    if least is None or sum(tensor.numel() for tensor in tensors) < least:
        raise Declined("the CPU is faster for this size")
    return apply(rule, plan, args, kwargs, target_type)


def apply(rule: Rule, plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any], target_type: str) -> tuple[Any, int]:
    """The same, even if MLX is slower."""
    if plan.kind != FUNCTIONAL:
        raise Declined(f"the {plan.kind} form")
    _check(rule, tensors_of(args) + tensors_of(tuple(kwargs.values())))
    import mlx.core as mx

    crossing = Crossing(target_type)
    given = [_array(crossing.enter(value, name, plan), mx) for name, value in zip(plan.arguments, args, strict=False)]
    options = {name: _array(crossing.enter(value, name, plan), mx) for name, value in kwargs.items()}
    try:
        results = rule.expression(*given, **options)
    except TypeError as error:  # an argument for which the expression has no parameter (dtype=, memory_format=)
        raise Declined(f"arguments: {error}") from error
    except (
        ValueError,
        RuntimeError,
    ) as error:  # MLX's own error; if the call is wrong, the CPU raises torch's error
        raise Declined(f"MLX: {error}") from error
    several = isinstance(results, (tuple, list))
    # torch has no negative strides, and aborts if it gets them through DLPack.
    arrays = [mx.contiguous(array) for array in (results if several else [results])]
    mx.eval(arrays)
    back = [crossing.leave(torch.from_dlpack(array)) for array in arrays]
    return (tuple(back) if several else back[0]), crossing.moved


def _check(rule: Rule, tensors: list[torch.Tensor]) -> None:
    for tensor in tensors[:1] if rule.mixed else tensors:
        if tensor.dtype not in rule.dtypes:
            raise Declined(f"{tensor.dtype} is not exact there")
    if not tensors or tensors[0].layout is not torch.strided or any(t.numel() == 0 for t in tensors):
        raise Declined("sparse or empty tensors")
    if not rule.mixed and len({tensor.dtype for tensor in tensors}) > 1:
        raise Declined("several dtypes")


def tensors_of(values: tuple[Any, ...]) -> list[torch.Tensor]:
    """The tensors among arguments, including those in lists."""
    found: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, RealTensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found += [item for item in value if isinstance(item, RealTensor)]
    return found


def _array(value: Any, mx: Any) -> Any:
    if isinstance(value, RealTensor):
        return mx.array(value.detach().contiguous())
    if isinstance(value, list) and value and isinstance(value[0], RealTensor):
        return [_array(item, mx) for item in value]
    return value
