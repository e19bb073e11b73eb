"""Custom operators of a program (`torch.library`): a kernel for an accelerator that the host lacks runs on the target.

Kernels in Python compute on the device of their arguments. A kernel that the program registers for the target, for the
CPU or for all devices takes precedence, whenever it is registered. Ours is removed then, and at the end of the session.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

from torchdevice._torch import dispatcher
from torchdevice._torch.core import TORCH_FOLDER
from torchdevice._torch.dispatcher import LIBRARY_END
from torchdevice.ledger import renew_after_fork
from torchdevice.policy.hosts import is_accelerator
from torchdevice.policy.resolve import Caller
from torchdevice.translate.callers import OURS
from torchdevice.translate.engine import Applied, Function, Replacement, apply, dress
from torchdevice.translate.translator import Translator

_PATH = "torch.library.Library.impl"
# Code that registers on behalf of its caller: `torch.library.impl`, `custom_op`, and our own wrappers.
_RELAYS = (f"{TORCH_FOLDER}library.py", f"{TORCH_FOLDER}_library{os.sep}", OURS)
_AUTOGRAD = "Autograd"  # the prefix of dispatch keys whose kernels run before the device's own


class Kernels:
    """The kernels that currently run on the target, by operator, each with the library in which it was registered."""

    def __init__(self, translator: Translator) -> None:
        self._translator = translator
        self._register: Function = torch.library.Library.impl
        self._served: dict[str, list[tuple[weakref.ref[Any], torch.library.Library]]] = {}
        self._kinds = {key: kind for kind, key in dispatcher.KEYS.items() if is_accelerator(kind)}
        self._lock = threading.RLock()
        renew_after_fork(self, "_lock")

    def apply(self) -> Callable[[], None]:
        """Handle kernels that are registered from now on. The returned function undoes everything."""
        library = torch.library.Library
        self._register, end = library.impl, getattr(library, LIBRARY_END)
        watch = apply(
            [
                Replacement(_PATH, library, "impl", self._watched_impl(library.impl)),
                Replacement("torch.library.Library", library, LIBRARY_END, self._watched_end(end)),
            ]
        )
        return lambda: self._undo(watch)

    def _undo(self, watch: Applied) -> None:
        watch.undo()
        for name in list(self._served):
            self._withdraw(name)

    def _watched_impl(self, original: Function) -> Function:
        def impl(library: Any, op_name: Any, fn: Any, dispatch_key: Any = "", **options: Any) -> Any:
            name = dispatcher.full_name(library.ns, op_name)
            key = dispatch_key or library.dispatch_key
            if name is None or name.startswith("aten::") or not isinstance(key, str):
                return original(library, op_name, fn, dispatch_key, **options)
            backend = key.removeprefix(_AUTOGRAD)
            kind = self._kinds.get(backend)
            given = kind
            if kind is not None and self._is_from_user(sys._getframe(1)):
                given = self._translator.redirected_type(kind, _PATH)
            if given == kind and (kind or backend == "CPU" or key in dispatcher.COMPOSITES):
                self._withdraw(name)
            result = original(library, op_name, fn, dispatch_key, **options)
            if given is not None and given != kind:
                self._serve(library, name, fn, key.replace(backend, dispatcher.backend_key(given)), options)
            return result

        return dress(impl, original, _PATH)

    def _watched_end(self, original: Function) -> Function:
        def end(library: Any) -> Any:
            for name in [
                name for name, served in list(self._served.items()) if any(by() is library for by, _ in served)
            ]:
                self._withdraw(name)
            return original(library)

        return dress(end, original, "torch.library.Library")

    def _is_from_user(self, frame: FrameType | None) -> bool:
        """Whether user code registers a kernel. torch's own kernels in Python are not changed."""
        while frame is not None and frame.f_code.co_filename.startswith(_RELAYS):
            frame = frame.f_back
        return frame is not None and self._translator.roles[frame.f_code.co_filename].caller is Caller.USER

    def _serve(self, by: Any, name: str, kernel: Any, key: str, options: dict[str, Any]) -> None:
        with self._lock:
            backend = key.removeprefix(_AUTOGRAD)
            served = self._served.get(name)
            if dispatcher.has_kernel(name, key) or (not served and _runs(name, backend)):
                return
            ours = torch.library.Library(name.partition("::")[0], "IMPL")
            self._register(ours, name, kernel, key, with_keyset=options.get("with_keyset", False))
            self._served.setdefault(name, []).append((weakref.ref(by), ours))
            weakref.finalize(by, self._withdraw, name).atexit = False

    def _withdraw(self, name: str) -> None:
        with self._lock:
            for _, ours in self._served.pop(name, ()):
                getattr(ours, LIBRARY_END)()


def _runs(name: str, backend: str) -> bool:
    return any(dispatcher.runs_on(name, key) for key in (backend, "CPU"))
