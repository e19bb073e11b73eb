"""Puts our kernels into the dispatcher for what a target lacks, and takes them out again.

What is lacking is `capability`; who computes is `route`. Operators that the target has are not touched, but for those
of `guards`, whose own kernel is asked first. Operators that are not torch's own are `extensions`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from typing import Any

from torchdevice import compat_dispatcher
from torchdevice.fallback import compressed, cpu
from torchdevice.fallback.capability import RECOMPOSED, Gap, backend_key, gaps
from torchdevice.fallback.compressed import CompressedTensor
from torchdevice.fallback.extensions import Extensions
from torchdevice.fallback.guards import GUARDED, make_guard, silently_wrong
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
        self._registrations = compat_dispatcher.Registrations()
        self.extensions = Extensions()

    def engage(self, router: Router, refused: Collection[tuple[str, str]] = ()) -> None:
        """Register a kernel for every gap of the router's target."""
        compresses = compressed.made_for(router.target)
        add, self.router = self._registrations.add, router
        for gap in gaps(router.target, refused):
            plan = read_plan(gap.name)
            if plan is not None:
                add(gap.name, gap.key, _kernel(plan, router, f"{router.target} has no kernel for it"))
                self.covered[gap] = plan
        covered = {gap.name for gap in self.covered}
        for name in sorted(
            {*(f"aten::{row}" for row in GUARDED.get(router.target, ())), *self.wanted_guards} - covered
        ):
            self.guard(name)
        self._recompose(RECOMPOSED.get(router.target, ()), backend_key(router.target))
        if not compresses:
            self._compress(router)
        self.extensions.engage(router)

    def guard(self, name: str) -> None:
        """Native first for this operator; what it refuses runs elsewhere. Again: nothing happens."""
        if self.router is None or name in self.guarded:
            return
        plan = read_plan(name)
        if plan is None:
            return
        backend = backend_key(self.router.target)
        composite = compat_dispatcher.has_kernel(name, "CompositeImplicitAutograd")
        # A composite has its code at the autograd key too; there the copies are part of the graph, and so it has one.
        for key in (backend, f"Autograd{backend}") if composite else (backend,):
            native = compat_dispatcher.native_kernel(name, key)
            if native is not None:
                elsewhere = partial(self.router.run, replace(plan, recorded=key != backend))
                kernel = make_guard(native, elsewhere, silently_wrong(self.router.target, name.removeprefix("aten::")))
                self._registrations.add(name, key, kernel, with_keyset=True)
                self.guarded.add(name)

    def _recompose(self, names: Collection[str], backend: str) -> None:
        for key in (backend, f"Autograd{backend}") if names else ():
            for name in names:
                operator = compat_dispatcher.find_operator(name)
                if operator is not None:
                    self._registrations.add(name, key, operator.decompose)

    def _compress(self, router: Router) -> None:
        """Compressed sparse tensors where torch makes none: constructed, converted, or copied from the CPU."""
        add, backend = self._registrations.add, backend_key(router.target)
        plans = [plan for plan in map(read_plan, compressed.constructors()) if plan is not None]
        for key in (backend, f"SparseCsr{backend}", f"Autograd{backend}"):
            for plan in plans:
                # At the autograd key stand the constructors that torch takes apart there; the others have gradients.
                taken_apart = compat_dispatcher.has_kernel(plan.name, "CompositeImplicitAutograd")
                if taken_apart or not key.startswith("Autograd"):
                    add(plan.name, key, _kernel(plan, router, compressed.REASON))
        add("aten::_to_copy", f"SparseCsr{backend}", compressed.copy_to_target)
        convert = read_plan("aten::_to_sparse")
        assert convert is not None  # it is in every torch that has compressed layouts
        for key in (backend, f"Sparse{backend}"):
            native = compat_dispatcher.native_kernel(convert.name, key)
            if native is not None:
                kernel = compressed.compressing(native, _kernel(convert, router, compressed.REASON))
                add(convert.name, key, kernel, with_keyset=True)
        CompressedTensor.elsewhere = staticmethod(router.run)

    def disengage(self) -> None:
        """Take every kernel back."""
        if self.router is not None:
            target = self.router.target
            CompressedTensor.elsewhere = staticmethod(
                lambda plan, reason, args, kwargs: cpu.run(plan, args, kwargs, target)[0]
            )
        self.extensions.disengage()
        self._registrations.undo()
        self.covered.clear()
        self.guarded.clear()
        self.router = None


def _kernel(plan: Plan, router: Router, reason: str) -> Kernel:
    run = router.run

    def kernel(*args: Any, **kwargs: Any) -> Any:
        return run(plan, reason, args, kwargs)

    return kernel
