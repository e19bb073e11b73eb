"""What people, and fuzzers, pass as a device; and the ways in which it is passed. No tests here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

TYPES = ["cpu", "cuda", "mps", "xpu", "meta", "hip", "privateuseone", "CUDA", "Cuda", "gpu", ""]
INDICES = ["", ":", ":0", ":1", ":-1", ":00", ":+1", ": 0", ":127", ":128", ":99999999999999999999", ":0:0", ":a", ":٣"]


class Text(str):
    """A string of somebody's own."""


class Number(int):
    """A number of somebody's own."""


class Index:
    """Not a number, but usable as one."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value

    def __repr__(self) -> str:
        return f"Index({self.value})"


numbers = st.one_of(st.integers(-3, 9), st.sampled_from([127, 128, -128, 2**31, 2**63, 2**64, -(2**63) - 1]))
names = st.builds("{}{}".format, st.sampled_from(TYPES), st.sampled_from(INDICES))
valid = st.sampled_from([torch.device("cpu"), torch.device("meta"), torch.device("cuda"), torch.device("mps:0")])
anything = st.one_of(
    names,
    names.map(Text),
    names.map(lambda name: name.encode()),
    names.map(np.str_),
    names.map(lambda name: f" {name}"),
    st.text(max_size=8),
    numbers,
    numbers.map(Number),
    numbers.filter(lambda n: -(2**63) <= n < 2**63).map(np.int64),
    numbers.map(Index),
    valid,
    st.sampled_from([None, True, False, 1.5, float("nan"), [], {}, (), object, torch.float32, torch.strided, ...]),
    st.builds(torch.zeros, st.just(1)),
)

Call = Callable[[Callable[..., Any], Any], Any]
# How a factory (`f`) can be called with a device (`d`): rightly and wrongly.
FACTORY_SHAPES: dict[str, Call] = {
    "keyword": lambda f, d: f(2, device=d),
    "positional": lambda f, d: f(0, d),  # a size of its own: nothing may be allocated
    "twice": lambda f, d: f(0, d, device=d),
    "alone": lambda f, d: f(device=d),
    "unknown keyword": lambda f, d: f(2, devices=d),
    "size list": lambda f, d: f([2], device=d),
    "with dtype": lambda f, d: f((2,), dtype=torch.float64, device=d),
    "bad dtype": lambda f, d: f(2, dtype=d),
}
METHOD_SHAPES: dict[str, Call] = {
    "positional": lambda f, d: f(torch.ones(2), d),
    "keyword": lambda f, d: f(torch.ones(2), device=d),
    "with dtype": lambda f, d: f(torch.ones(2), d, torch.int32),
    "other order": lambda f, d: f(torch.ones(2), torch.int32, d),
    "flags": lambda f, d: f(torch.ones(2), d, non_blocking=True, copy=True),
    "twice": lambda f, d: f(torch.ones(2), d, device=d),
    "unknown keyword": lambda f, d: f(torch.ones(2), d, flavour=1),
    "no self": lambda f, d: f(d),
}
NEW_SHAPES: dict[str, Call] = {
    "keyword": lambda f, d: f(torch.ones(2), (0,), device=d),
    "twice": lambda f, d: f(torch.ones(2), (0,), d, device=d),
    "bad size": lambda f, d: f(torch.ones(2), (0, "a"), device=d),
}
DEVICE_SHAPES: dict[str, Call] = {
    "one": lambda f, d: f(d),
    "two": lambda f, d: f("cuda", d),
    "keyword": lambda f, d: f(type=d),
    "index": lambda f, d: f("cuda", index=d),
    "three": lambda f, d: f(d, 0, 0),
}
TARGETS: dict[str, dict[str, Call]] = {
    "torch.zeros": FACTORY_SHAPES,
    "torch.empty": FACTORY_SHAPES,
    "torch.randn": FACTORY_SHAPES,
    "torch.full": {
        name: (lambda f, d, c=call: c(lambda *a, **k: f(*a, 1.0, **k), d)) for name, call in FACTORY_SHAPES.items()
    },
    "torch.tensor": FACTORY_SHAPES,
    "torch.eye": {name: call for name, call in FACTORY_SHAPES.items() if name not in ("positional", "twice")},
    "torch.zeros_like": METHOD_SHAPES,
    "torch.Tensor.to": METHOD_SHAPES,
    "torch.Tensor.cuda": {name: call for name, call in METHOD_SHAPES.items() if "dtype" not in name},
    "torch.Tensor.new_zeros": NEW_SHAPES,
    "torch.device": DEVICE_SHAPES,
    "torch.Generator": DEVICE_SHAPES,
}
