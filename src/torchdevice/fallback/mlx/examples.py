"""Arguments to measure every rule with, by operator and size. From the schema; the odd ones stand in a table."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from torchdevice import compat, compat_dispatcher
from torchdevice.fallback.mlx.executor import Rule
from torchdevice.fallback.schema import Plan

Arguments = tuple[Any, ...]

# By name of the argument; what is not here and has a default is left out.
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
    """Positional arguments on the CPU, the first tensor of about so many elements."""
    side = max(8, math.isqrt(elements) // 8 * 8)
    generator = compat.RealGenerator("cpu").manual_seed(0)
    x = torch.rand(side, side, generator=generator) + 0.5
    if torch.float32 not in rule.dtypes:
        x = (x * 100).to(torch.int64)
    written = _WRITTEN.get(plan.name.removeprefix("aten::"))
    if written is not None:
        return written(x)
    given: list[Any] = []
    for argument in compat_dispatcher.schema_of(plan.operator).arguments:
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
