"""Puts our kernels into the dispatcher for what a target lacks, and takes them out again.

What is lacking is `capability`; who computes is `route`. Operators that the target has are not touched.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from torchdevice import compat
from torchdevice.fallback.capability import RECOMPOSED, Gap, backend_key, gaps
from torchdevice.fallback.guards import GUARDED, make_guard
from torchdevice.fallback.route import Router
from torchdevice.fallback.schema import Plan, read_plan

Kernel = Callable[..., Any]


class Coverage:
    """The kernels that stand in a target's dispatcher slots at the moment."""

    def __init__(self) -> None:
        self.router: Router | None = None
        self.covered: dict[Gap, Plan] = {}
        self.guarded: set[str] = set()
        self.wanted_guards: set[str] = set()  # the user's own
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

        covered = {gap.name for gap in self.covered}
        for name in sorted(
            {*(f"aten::{row}" for row in GUARDED.get(router.target, ())), *self.wanted_guards} - covered
        ):
            self.guard(name)
        self._recompose(RECOMPOSED.get(router.target, ()), backend_key(router.target))

    def guard(self, name: str) -> None:
        """Native first for this operator; what it refuses runs elsewhere. Again: nothing happens."""
        if self.router is None or name in self.guarded:
            return
        plan = read_plan(name)
        if plan is None:
            return
        backend = backend_key(self.router.target)
        composite = compat.has_kernel(name, "CompositeImplicitAutograd")
        # A composite has its code at the autograd key too; there the copies are part of the graph, and so it has one.
        for key in (backend, f"Autograd{backend}") if composite else (backend,):
            native = compat.native_kernel(name, key)
            if native is not None:
                registrations = compat.Registrations(key, (name,))
                self._registrations.append(registrations)
                registrations.add(name, make_guard(native, partial(self.router.run, plan)), with_keyset=True)
                self.guarded.add(name)

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
        self.guarded.clear()
        self.router = None


def _kernel(plan: Plan, router: Router) -> Kernel:
    reason = f"{router.target} has no kernel for it"
    run = router.run

    def kernel(*args: Any, **kwargs: Any) -> Any:
        return run(plan, reason, args, kwargs)

    return kernel
