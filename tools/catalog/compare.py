"""Whether what a host gave is what plain torch gave: a pure function of two digests."""

from __future__ import annotations

import math
from typing import Any

NARROWED = {"float64": "float32", "complex128": "complex64"}
ROUNDING = {"float16": 4e-3, "bfloat16": 3e-2, "complex32": 4e-3}
USUAL = 2e-4


def differs(want: Any, have: Any, narrowing: bool = False, values: bool = True, path: str = "result") -> str:
    """What differs, in words; empty if nothing does. `narrowing`: the host has no float64. `values`: compare them."""
    if isinstance(want, dict) and "float" in want and isinstance(have, dict) and "float" in have:
        close = not values or _close(float(want["float"]), float(have["float"]), USUAL, 1.0)
        return "" if close else f"{path}: {have['float']} instead of {want['float']}"
    if isinstance(want, dict) and "tensor" in want:
        return _tensor_differs(want, have, narrowing, values, path)
    if type(want) is not type(have):
        return f"{path}: {_short(have)} instead of {_short(want)}"
    if isinstance(want, dict):
        if want.keys() != have.keys():
            return f"{path}: {sorted(have)} instead of {sorted(want)}"
        parts = (differs(want[key], have[key], narrowing, values, f"{path}.{key}") for key in want)
        return next(filter(None, parts), "")
    if isinstance(want, list):
        if len(want) != len(have):
            return f"{path}: {len(have)} items instead of {len(want)}"
        parts = (
            differs(w, h, narrowing, values, f"{path}[{i}]") for i, (w, h) in enumerate(zip(want, have, strict=True))
        )
        return next(filter(None, parts), "")
    if want == have or not values:
        return ""
    return f"{path}: {_short(have)} instead of {_short(want)}"


def _tensor_differs(want: dict[str, Any], have: Any, narrowing: bool, values: bool, path: str) -> str:
    if not isinstance(have, dict) or "tensor" not in have:
        return f"{path}: {_short(have)} instead of a tensor"
    if values and want["tensor"] != have["tensor"]:
        return f"{path}: shape {have['tensor']} instead of {want['tensor']}"
    if "parts" in want or "parts" in have:
        return differs(want.get("parts"), have.get("parts"), narrowing, values, path)
    expected = NARROWED.get(want["dtype"], want["dtype"]) if narrowing else want["dtype"]
    if have["dtype"] not in (expected, want["dtype"]):
        return f"{path}: {have['dtype']} instead of {expected}"
    if not values or "values" not in want:
        return ""
    if len(have.get("values", ())) != len(want["values"]):
        return f"{path}: {len(have.get('values', ()))} values instead of {len(want['values'])}"
    eps = ROUNDING.get(expected, USUAL)
    ours, theirs = [_number(v) for v in have["values"]], [_number(v) for v in want["values"]]
    scale = max([1.0, *(abs(v) for v in theirs if math.isfinite(v))])
    for mine, other in zip(ours, theirs, strict=True):
        if not _close(other, mine, eps, scale):
            return f"{path}: a value {mine} instead of {other}"
    return ""


def _number(text: str) -> float:
    return float(text == "True") if text in ("True", "False") else float(text)


def _close(want: float, have: float, eps: float, scale: float) -> bool:
    return want == have or (math.isnan(want) and math.isnan(have)) or abs(want - have) <= eps * scale


def _short(value: Any) -> str:
    return str(value)[:60]
