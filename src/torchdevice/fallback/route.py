"""Runs a call that the target cannot run: tries the executors of the chain in order.

An executor returns results, or raises `Declined` with a reason. Any other exception is the operator's own and is
raised to the caller unchanged.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

from torchdevice._torch import dispatcher
from torchdevice._torch.core import RealTensor
from torchdevice.errors import FallbackRefused, explain_error
from torchdevice.fallback import cpu
from torchdevice.fallback.mlx import executor as mlx
from torchdevice.fallback.plan import Declined, Plan
from torchdevice.ledger import REFUSED, Fallback, Site, fallbacks
from torchdevice.translate import callers
from torchdevice.translate.callers import user_frame
from torchdevice.translate.translator import translator

# Takes the plan, the arguments and the target's type; returns results on the target and the number of bytes copied.
Executor = Callable[[Plan, tuple[Any, ...], dict[str, Any], str], tuple[Any, int]]

EXECUTORS: dict[str, Executor] = {"cpu": cpu.run, "mlx": mlx.run}


def note(operator: str, executor: str, reason: str, dtypes: tuple[str, ...], seconds: float, moved: int) -> None:
    """Count an operator that fell back, at the current line of user code."""
    frame = user_frame(sys._getframe(1), translator.roles)
    fallbacks.measure(
        frame,
        (operator, executor, dtypes),
        lambda site: Fallback(operator, executor, reason, dtypes, site_of(frame)),
        seconds,
        moved,
    )


def site_of(frame: FrameType) -> Site:
    """The line of user code in a report."""
    return callers.site_of(frame, translator.roles)


class Router:
    """The chain of executors for one target."""

    def __init__(self, target: str, chain: tuple[str, ...], source: str) -> None:
        self.target = target
        self.key = dispatcher.backend_key(target)
        self.chain = chain
        self._source = source
        self._chains: dict[str, tuple[tuple[tuple[str, Executor], ...], str]] = {}

    def run(self, plan: Plan, reason: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the call on the first executor that accepts it."""
        executors, declined_before = self._chains.get(plan.name) or self.chain_of(plan.name)
        reason += declined_before
        for name, execute in executors:
            started = time.perf_counter()
            try:
                results, moved = execute(plan, args, kwargs, self.target)
            except Declined as declined:
                reason = f"{reason}; {name}: {declined.reason}"
                continue
            seconds = time.perf_counter() - started
            if moved or plan.viewed is None:  # a view without a copy is not counted
                note(plan.name, name, reason, _dtypes(args), seconds, moved)
            return results
        note(plan.name, REFUSED, reason, _dtypes(args), 0.0, 0)
        raise FallbackRefused(self._refusal(plan, reason, args))

    def chain_of(self, operator: str) -> tuple[tuple[tuple[str, Executor], ...], str]:
        """The executors that may run an operator, and why the others may not. Decided once per operator."""
        if operator in self._chains:
            return self._chains[operator]
        why_not = mlx.never(operator) if mlx.NAME in self.chain else None
        names = [name for name in self.chain if name != mlx.NAME or why_not is None]
        found = tuple((name, EXECUTORS[name]) for name in names), f"; {mlx.NAME}: {why_not}" if why_not else ""
        self._chains[operator] = found
        return found

    def _refusal(self, plan: Plan, reason: str, args: tuple[Any, ...]) -> str:
        place = site_of(user_frame(sys._getframe(1), translator.roles))
        asked = f"{plan.name}({', '.join(_dtypes(args))}) at {place}"
        if not self.chain:
            return explain_error(
                asked,
                f"{reason}, and fallbacks are off ({self._source})",
                "set TORCHDEVICE_FALLBACK=cpu to run such operators on the CPU",
            )
        return explain_error(asked, f"{reason}, and none of {', '.join(self.chain)} can run it", "use another operator")


def _dtypes(args: tuple[Any, ...]) -> tuple[str, ...]:
    """The dtypes of the tensors among the first arguments, by which a report distinguishes calls."""
    return tuple(_NAMES[value.dtype] for value in args if isinstance(value, RealTensor))


class _Names(dict[torch.dtype, str]):
    """A cache of the names of dtypes as reports show them."""

    def __missing__(self, dtype: torch.dtype) -> str:
        name = self[dtype] = str(dtype).removeprefix("torch.")
        return name


_NAMES = _Names()
