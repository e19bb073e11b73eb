"""Operators that are not torch's own, of extensions and of programs: what has a kernel for the CPU only runs there.

They turn up at any time: with a library that is loaded, or by `torch.library`. Each has a registration of its own,
which gives way to a kernel that is registered for the target later. torch's own operators are `kernels`' business.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torchdevice import compat_dispatcher
from torchdevice.fallback.capability import LAYOUTS, Gap, backend_key, extension_gaps, is_extension
from torchdevice.fallback.route import Router
from torchdevice.fallback.schema import Plan, read_plan
from torchdevice.patching.adapters import dress
from torchdevice.patching.engine import Applied, Replacement, apply
from torchdevice.patching.translator import translator

Kernel = Callable[..., Any]


class Extensions:
    """The kernels that stand in for a target's at the moment, and the watch for more operators."""

    def __init__(self) -> None:
        self._router: Router | None = None
        self._watch: Applied | None = None
        self._covering = False
        self.covered: dict[Gap, compat_dispatcher.Registrations] = {}

    def engage(self, router: Router) -> None:
        """Cover what is there, and from now on what comes."""
        self._router = router
        self.cover()
        library, namespace = torch.library.Library, compat_dispatcher.OpNamespace
        self._watch = apply(
            [
                Replacement("torch.library.Library.impl", library, "impl", self._watched_impl(library.impl)),
                Replacement("torch.ops", namespace, "__getattr__", self._watched_lookup(namespace.__getattr__)),
            ]
        )

    def disengage(self) -> None:
        """Take every kernel and the watch back."""
        if self._watch is not None:
            self._watch.undo()
            self._watch = None
        self._router = None
        while self.covered:
            self.covered.popitem()[1].undo()

    def cover(self) -> None:
        """Register a kernel for every gap that has none."""
        if self._router is None or self._covering:  # reading a plan looks operators up
            return
        self._covering = True
        try:
            for gap in list(extension_gaps(self._router.target)):
                plan = read_plan(gap.name) if gap not in self.covered else None
                if plan is not None:
                    registration = compat_dispatcher.Registrations()
                    registration.add(gap.name, gap.key, _kernel(plan, self._router))
                    self.covered[gap] = registration
        finally:
            self._covering = False

    def _withdraw(self, gap: Gap) -> None:
        registration = self.covered.pop(gap, None)
        if registration is not None:
            registration.undo()

    def _watched_impl(self, original: Kernel) -> Kernel:
        def impl(library: Any, op_name: Any, fn: Any, dispatch_key: str = "", **options: Any) -> Any:
            key = dispatch_key or library.dispatch_key
            ours = self._covering or self._router is None or not is_extension(library.ns)
            if not ours:
                self._withdraw(Gap(compat_dispatcher.full_name(library.ns, op_name), key))
            result = original(library, op_name, fn, dispatch_key, **options)
            if not ours and key in _CPU_KEYS:
                self.cover()
            return result

        return dress(impl, original, "torch.library.Library.impl")

    def _watched_lookup(self, original: Kernel) -> Kernel:
        def __getattr__(namespace: Any, op_name: str) -> Any:  # noqa: N807
            found = original(namespace, op_name)  # torch keeps what was found: nobody comes here twice for it
            if is_extension(namespace.name):
                self.cover()
            return found

        return dress(__getattr__, original, "torch.ops")


_CPU_KEYS = frozenset(f"{layout}{backend_key('cpu')}" for layout in LAYOUTS)


def _kernel(plan: Plan, router: Router) -> Kernel:
    reason = f"{router.target} has no kernel for it"

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with translator.suspended():  # a kernel for the CPU that is Python: what it makes must be there, too
            return router.run(plan, reason, args, kwargs)

    return kernel
