"""Puts our kernels into the dispatcher for what a target lacks, and takes them out again.

What is lacking is `capability`; who computes is `route`. Operators that the target has are not touched.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from torchdevice import compat
from torchdevice.fallback.capability import RECOMPOSED, Gap, backend_key, gaps
from torchdevice.fallback.route import Router
from torchdevice.fallback.schema import Plan, read_plan

Kernel = Callable[..., Any]


class Coverage:
    """The kernels that stand in a target's dispatcher slots at the moment."""

    def __init__(self) -> None:
        self.router: Router | None = None
        self.covered: dict[Gap, Plan] = {}
        self._registrations: list[compat.Registrations] = []

    def engage(self, router: Router, refused: Collection[tuple[str, str]] = ()) -> None:
        """Register a kernel for every gap of the router's target."""
        by_key: dict[str, list[Gap]] = {}
        for gap in gaps(router.target, refused):
            by_key.setdefault(gap.key, []).append(gap)
        self.router = router
        for key, missing in by_key.items():
            registrations = compat.Registrations(key, [gap.name for gap in missing])
            self._registrations.append(registrations)
            for gap in missing:
                plan = read_plan(gap.name)
                if plan is not None:
                    registrations.add(gap.name, _kernel(plan, router))
                    self.covered[gap] = plan

        self._recompose(RECOMPOSED.get(router.target, ()), backend_key(router.target))

    def _recompose(self, names: Collection[str], backend: str) -> None:
        for key in (backend, f"Autograd{backend}") if names else ():
            registrations = compat.Registrations(key, tuple(names))
            self._registrations.append(registrations)
            for name in names:
                operator = compat.find_operator(name)
                if operator is not None:
                    registrations.add(name, operator.decompose)

    def disengage(self) -> None:
        """Take every kernel back."""
        while self._registrations:
            self._registrations.pop().undo()
        self.covered.clear()
        self.router = None


def _kernel(plan: Plan, router: Router) -> Kernel:
    reason = f"{router.target} has no kernel for it"
    run = router.run

    def kernel(*args: Any, **kwargs: Any) -> Any:
        return run(plan, reason, args, kwargs)

    return kernel
