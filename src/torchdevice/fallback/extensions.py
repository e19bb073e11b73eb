"""Operators that are not torch's own, of extensions and of programs: what has a kernel for the CPU only runs there.

They turn up at any time: with a library that is loaded, or by `torch.library`. Each has a registration of its own,
which gives way to a kernel that is registered for the target later. torch's own operators are `kernels`' business.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from torchdevice import compat_dispatcher
from torchdevice.compat_dispatcher import LIBRARY_END
from torchdevice.events import renew_after_fork
from torchdevice.fallback.capability import Gap, extension_gaps, is_extension
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
        self._lock = threading.Lock()
        renew_after_fork(self, "_lock")
        self._at_work = threading.local()  # what we look up, register and take back ourselves is no news
        self.covered: dict[Gap, compat_dispatcher.Registrations] = {}

    def engage(self, router: Router) -> None:
        """Cover what is there, and from now on what comes."""
        self._router = router
        self.cover()
        library, namespace = torch.library.Library, compat_dispatcher.OpNamespace
        self._watch = apply(
            [
                Replacement("torch.library.Library.impl", library, "impl", self._watched_impl(library.impl)),
                Replacement(
                    "torch.library.Library", library, LIBRARY_END, self._watched_end(getattr(library, LIBRARY_END))
                ),
                Replacement("torch.ops", namespace, "__getattr__", self._watched_lookup(namespace.__getattr__)),
            ]
        )

    def disengage(self) -> None:
        """Take every kernel and the watch back."""
        if self._watch is not None:
            self._watch.undo()
            self._watch = None
        with self._working():
            self._router = None
            while self.covered:
                self.covered.popitem()[1].undo()

    def cover(self) -> None:
        """Register a kernel for every gap that has none."""
        with self._working():
            if self._router is None:
                return
            for gap in list(extension_gaps(self._router.target)):
                plan = read_plan(gap.name)
                if plan is not None:
                    registration = compat_dispatcher.Registrations()
                    registration.add(gap.name, gap.key, _kernel(plan, self._router))
                    self.covered[gap] = registration

    def _withdraw(self, name: str) -> None:
        with self._working():
            for gap in [gap for gap in self.covered if gap.name == name]:
                self.covered.pop(gap).undo()

    @contextmanager
    def _working(self) -> Iterator[None]:
        with self._lock:
            self._at_work.now = True
            try:
                yield
            finally:
                self._at_work.now = False

    def _is_ours(self, namespace: str) -> bool:
        return getattr(self._at_work, "now", False) or not is_extension(namespace)

    def _watched_impl(self, original: Kernel) -> Kernel:
        def impl(library: Any, op_name: Any, *args: Any, **options: Any) -> Any:
            name = compat_dispatcher.full_name(library.ns, op_name)
            if name is None or self._is_ours(library.ns):
                return original(library, op_name, *args, **options)
            # Whatever it is for, it may change what is to be done: another schema, a kernel for the target or for all.
            self._withdraw(name)
            try:
                return original(library, op_name, *args, **options)
            finally:
                self.cover()

        return dress(impl, original, "torch.library.Library.impl")

    def _watched_end(self, original: Kernel) -> Kernel:
        def end(library: Any) -> Any:
            result = original(library)
            if not self._is_ours(library.ns):
                self.cover()  # what it had for the target is gone
            return result

        return dress(end, original, "torch.library.Library")

    def _watched_lookup(self, original: Kernel) -> Kernel:
        def __getattr__(namespace: Any, op_name: str) -> Any:  # noqa: N807
            found = original(namespace, op_name)  # torch keeps what was found: nobody comes here twice for it
            if not self._is_ours(namespace.name):
                self.cover()
            return found

        return dress(__getattr__, original, "torch.ops")


def _kernel(plan: Plan, router: Router) -> Kernel:
    reason = f"{router.target} has no kernel for it"
    recorded = replace(plan, recorded=True)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        # Without a formula of its own an operator in Python has the gradient of what it does: autograd looks on.
        looked_at = torch.is_grad_enabled() and not compat_dispatcher.below_autograd()
        with translator.suspended():  # a kernel for the CPU that is Python: what it makes must be there, too
            return router.run(recorded if looked_at else plan, reason, args, kwargs)

    return kernel
