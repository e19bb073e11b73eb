"""Who runs a call that the target cannot: the chain of executors, asked in order. Knows no dispatcher.

An executor answers with results, or with `Declined` and a reason; any other exception is the operator's own and goes to
the caller as it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from torchdevice.compat import RealTensor
from torchdevice.errors import FallbackRefused, explain_error
from torchdevice.fallback import cpu
from torchdevice.fallback.declined import Declined
from torchdevice.fallback.mlx import executor as mlx
from torchdevice.fallback.records import FallbackLedger
from torchdevice.fallback.schema import Plan

# Takes the plan, the arguments and the target's type; gives results on the target and the number of bytes moved.
Executor = Callable[[Plan, tuple[Any, ...], dict[str, Any], str], tuple[Any, int]]

EXECUTORS: dict[str, Executor] = {"cpu": cpu.run, "mlx": mlx.run}


class Router:
    """The chain in force for one target."""

    def __init__(self, target: str, chain: tuple[str, ...], source: str, ledger: FallbackLedger) -> None:
        self.target = target
        self.chain = chain
        self._source = source
        self._executors = [(name, EXECUTORS[name]) for name in chain]
        self._ledger = ledger

    def run(self, plan: Plan, reason: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The call on the first executor that takes it."""
        for name, execute in self._executors:
            started = time.perf_counter()
            try:
                results, moved = execute(plan, args, kwargs, self.target)
            except Declined as declined:
                reason = f"{reason}; {name}: {declined.reason}"
                continue
            seconds = time.perf_counter() - started
            if moved or plan.viewed is None:  # a look at a tensor that is there already is not work
                self._ledger.add(plan.name, name, reason, _dtypes(args), seconds, moved)
            return results
        raise FallbackRefused(self._refusal(plan, reason, args))

    def _refusal(self, plan: Plan, reason: str, args: tuple[Any, ...]) -> str:
        asked = f"{plan.name}({', '.join(_dtypes(args))}) at {self._ledger.place()}"
        if not self.chain:
            return explain_error(
                asked,
                f"{reason}, and fallbacks are off ({self._source})",
                "set TORCHDEVICE_FALLBACK=cpu to run such operators on the CPU",
            )
        return explain_error(asked, f"{reason}, and none of {', '.join(self.chain)} took it", "use another operator")


def _dtypes(args: tuple[Any, ...]) -> tuple[str, ...]:
    """The dtypes of the tensors among the first arguments: what a report needs to tell calls apart."""
    return tuple(str(value.dtype)[6:] for value in args if isinstance(value, RealTensor))
