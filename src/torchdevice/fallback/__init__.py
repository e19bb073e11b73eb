"""Operators that the target lacks: they run elsewhere and their results come back, gradients included.

Everything happens in the dispatcher, below autograd, so that a program needs no change and an operator that the target
has costs nothing, but for the few that are guarded. `session` switches it on and off; the names here are what users
and reports ask.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from contextlib import ExitStack

from torchdevice.fallback.kernels import Coverage
from torchdevice.fallback.mlx import executor as mlx
from torchdevice.fallback.route import Router
from torchdevice.fallback.table import Matrix, read_matrix
from torchdevice.ledger import Fallback, FallbackTotals, Listener, fallbacks

__all__ = ["clear", "engage", "guard", "matrix", "totals"]

coverage = Coverage()


def chain_of(setting: str, target: str) -> tuple[str, ...]:
    """The executors that `TORCHDEVICE_FALLBACK` stands for. MLX by default where it has a GPU to compute on."""
    if setting == "off":
        return ()
    wants_mlx = setting == "mlx,cpu" or (setting == "auto" and target == "mps" and sys.platform == "darwin")
    return ("mlx", "cpu") if wants_mlx and mlx.installed() else ("cpu",)


def engage(
    target: str,
    setting: str,
    source: str,
    refused: Collection[tuple[str, str]] = (),
    listener: Listener[Fallback] | None = None,
) -> Callable[[], None]:
    """Cover what `target` lacks; the undo takes it back."""
    with ExitStack() as stack:
        if listener is not None:
            stack.enter_context(fallbacks.listening(listener))
        stack.callback(coverage.undo)
        coverage.apply(Router(target, chain_of(setting, target), source), refused)
        return stack.pop_all().close


def guard(operator: str) -> None:
    """Let `operator` (`"aten::softplus"`) run elsewhere when the target's kernel refuses a dtype or a size.

    Holds for this activation and all later ones. A guarded call costs a few microseconds more.
    """
    coverage.wanted_guards.add(operator)
    coverage.guard(operator)


def matrix(target: str | None = None) -> Matrix:
    """Every aten operator of the installed torch: native, guarded, mlx or cpu on this target. Text by `str`."""
    return read_matrix(coverage, target)


def totals() -> dict[Fallback, FallbackTotals]:
    """What ran elsewhere so far: operator, executor, reason, dtypes, line of user code; calls, seconds, bytes."""
    return fallbacks.measured()


def clear() -> None:
    """Forget the figures."""
    fallbacks.clear()
