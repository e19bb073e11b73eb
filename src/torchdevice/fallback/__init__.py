"""Operators that the target lacks: they run on the CPU or MLX, and their results are copied back. Gradients work.

Everything happens in the dispatcher, below autograd, so a program needs no change. Operators that the target has are
not affected, except the few that are guarded. `session` switches it on and off. The names here are for users and
reports.
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
    """The executors that a value of `TORCHDEVICE_FALLBACK` selects. By default MLX is included if it has a GPU."""
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
    avoids_wrong_values: bool = True,
) -> Callable[[], None]:
    """Let operators that `target` lacks run on other executors. Returns the undo.

    `activate()` calls it. `setting` is a value of TORCHDEVICE_FALLBACK, and `source` names where it came from.
    `refused` are pairs of operator and dispatch functionality whose kernel only raises an error. `listener` is called
    once per new place. `avoids_wrong_values`: kernels are not called for arguments for which they are known to be
    wrong.
    """
    with ExitStack() as stack:
        if listener is not None:
            stack.enter_context(fallbacks.listening(listener))
        stack.callback(coverage.undo)
        coverage.apply(Router(target, chain_of(setting, target), source), refused, avoids_wrong_values)
        return stack.pop_all().close


def guard(operator: str) -> None:
    """Let `operator` (`"aten::softplus"`) fall back when the target's kernel refuses a dtype or a size.

    Applies to this activation and all later ones. A guarded call costs a few microseconds more.
    """
    coverage.wanted_guards.add(operator)
    coverage.guard(operator)


def matrix(target: str | None = None) -> Matrix:
    """Return where every aten operator of the installed torch runs: native, guarded, mlx or cpu.

    `target` is a device type; None means the target of the active session. `str(matrix())` is a list.
    """
    return read_matrix(coverage, target)


def totals() -> dict[Fallback, FallbackTotals]:
    """Return the operators that fell back so far, per place in user code, with calls, seconds and bytes."""
    return fallbacks.measured()


def clear() -> None:
    """Reset the figures that `totals` returns."""
    fallbacks.clear()
