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
    """Let operators that `target` lacks run elsewhere; the function that it returns takes that back.

    `activate()` calls it. `setting` is a value of TORCHDEVICE_FALLBACK, and `source` names where it came from.
    `refused` are pairs of operator and dispatch functionality whose kernel only refuses. `listener` is called once for
    each new place.
    """
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
    """Tell where every aten operator of the installed torch runs: native, guarded, mlx or cpu.

    `target` is a device type; None: the target of the running translation. `str(matrix())` is a list.
    """
    return read_matrix(coverage, target)


def totals() -> dict[Fallback, FallbackTotals]:
    """Tell which operators ran elsewhere so far, and where in user code: calls, seconds and bytes of each."""
    return fallbacks.measured()


def clear() -> None:
    """Forget the figures that `totals` tells."""
    fallbacks.clear()
