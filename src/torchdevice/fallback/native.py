"""Fallbacks and guards in C++, registered over the kernels in Python. They copy, count and pass on without Python.

The kernel is part of the virtual device's library. For a real accelerator it is a separate library, which
`torchdevice calibrate` builds. Without it the Python kernels run. They also run for what the C++ does not support:
random numbers, sparse layouts, tensor subclasses, and operators for which MLX comes first.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Iterable
from types import CodeType
from typing import Any

from torchdevice.fallback import cpu
from torchdevice.fallback.gaps import Gap
from torchdevice.fallback.plan import Plan
from torchdevice.fallback.route import Router, site_of
from torchdevice.ledger import Fallback, FallbackTotals, fallbacks
from torchdevice.policy.dtypes import narrowed_dtypes
from torchdevice.translate.callers import user_frame
from torchdevice.translate.translator import translator
from torchdevice.virtual import build
from torchdevice.virtual.installer import installed

# Parts of names of operators that take or return tensors that are not strided.
_OTHER_TENSORS = ("sparse", "quantize", "nested")


class Counter(ctypes.Structure):
    """The figures of one place, which C++ updates."""

    _fields_ = (("calls", ctypes.c_int64), ("nanoseconds", ctypes.c_int64), ("bytes", ctypes.c_int64))


class Counted:
    """The figures of a place, for its tally."""

    def __init__(self, library: ctypes.CDLL, address: int) -> None:
        self._library = library
        self._address = address
        self._counter = Counter.from_address(address)

    def totals(self) -> FallbackTotals:
        """The figures so far."""
        counter = self._counter
        return FallbackTotals(counter.calls, counter.nanoseconds * 1e-9, counter.bytes)

    def __del__(self) -> None:
        self._library.tdf_drop(self._address)


# In the order of the struct `Python` in fallback.cpp. Before Python 3.11 the line replaces the instruction.
_PYTHON = (
    "PyGILState_Ensure",
    "PyGILState_Release",
    "PyEval_GetFrame",
    "PyFrame_GetBack",
    "PyFrame_GetCode",
    "PyFrame_GetLasti" if sys.version_info >= (3, 11) else "PyFrame_GetLineNumber",
    "Py_IncRef",
    "Py_DecRef",
)
_IS_INNER = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.py_object)
_OPENED = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_uint64, ctypes.c_void_p)
_IS_REFUSAL = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_int)


def _library() -> ctypes.CDLL | None:
    """The library with the kernels; None if none is built, or if this Python cannot use it."""
    if sys.implementation.name != "cpython":
        return None
    there = installed()
    return there.library.dll if there is not None else build.load_if_built(build.FALLBACK)


def _usable_library() -> ctypes.CDLL | None:
    library = _library()
    if library is None or not library.tdf_usable():
        return None
    library.tdf_error.restype = library.tdf_dtype.restype = ctypes.c_char_p
    return library


class NativeKernels:
    """The C++ kernels that are registered for a target at present."""

    def __init__(self) -> None:
        self._library: ctypes.CDLL | None = None
        self._kept: tuple[Any, ...] = ()  # kept alive: C++ calls these
        self.covered: set[str] = set()

    def apply(self, router: Router, gaps: Iterable[tuple[Gap, Plan, str]]) -> None:
        """Register C++ kernels for the gaps that C++ supports, over the registered Python kernels."""
        wanted = [row for row in gaps if _is_simple(row[0], row[1], router)]
        library = _usable_library() if wanted else None
        if library is None:
            return
        self._library = library
        self._begin(
            library, router.target, [(plan.name, reason + router.chain_of(plan.name)[1]) for _, plan, reason in wanted]
        )
        for number, (gap, plan, _) in enumerate(wanted):
            _check(library, library.tdf_cover(*_slot(plan.name, gap.key), number))
            self.covered.add(plan.name)

    def _begin(self, library: ctypes.CDLL, target: str, rows: list[tuple[str, str]]) -> None:
        library.tdf_drop.argtypes = [ctypes.c_void_p]
        library.tdf_begin.argtypes = [ctypes.c_char_p, *[ctypes.c_void_p] * 4]
        addresses = [ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value for name in _PYTHON]
        functions = (ctypes.c_void_p * len(addresses))(*addresses)
        names = [name.encode() for pair in narrowed_dtypes(target) for name in pair]
        narrowed = (ctypes.c_char_p * (len(names) + 1))(*names, None)

        def is_inner(code: CodeType) -> int:
            return int(translator.roles[code.co_filename].inner)

        def opened(row: int, packed: int, counter: int) -> None:
            operator, reason = rows[row]
            dtypes = tuple(library.tdf_dtype(each - 1).decode() for each in packed.to_bytes(8, "big") if each)
            frame = user_frame(sys._getframe(), translator.roles)
            tally = fallbacks.tally(
                frame,
                (operator, cpu.NAME, dtypes),
                lambda _: Fallback(operator, cpu.NAME, reason, dtypes, site_of(frame)),
            )
            tally.sources.append(Counted(library, counter))

        self._kept = (_IS_INNER(is_inner), _OPENED(opened))
        fallbacks.when_forgotten(library.tdf_forget)
        callbacks = [ctypes.cast(each, ctypes.c_void_p) for each in self._kept]
        _check(library, library.tdf_begin(target.encode(), functions, *callbacks, narrowed))

    def undo(self) -> None:
        """Remove the C++ kernels. The Python kernels run again until they are removed too."""
        if self._library is not None:
            self._library.tdf_end()
            self._library.tdf_forget()
        self._library = None
        self.covered.clear()


class NativeGuards:
    """The C++ guards that are registered at present. Each calls the kernel of the device without calling Python."""

    def __init__(self, refusal_of: Callable[[Exception], str | None]) -> None:
        self._library: ctypes.CDLL | None = None
        self._refusal_of = refusal_of
        self._is_refusal = _IS_REFUSAL(self._ask)  # kept alive: C++ calls it
        self._refused = threading.local()

    def begin(self) -> bool:
        """Whether there can be C++ guards. Without them, the Python guards run."""
        self._library = _usable_library()
        self._refused = threading.local()
        if self._library is not None:
            self._library.tdf_ask(self._is_refusal)
        return self._library is not None

    def keep(self, name: str, key: str) -> None:
        """Keep the kernel of the device, before the Python guard is registered."""
        if self._library is not None:
            _check(self._library, self._library.tdf_keep(*_slot(name, key)))

    def add(self, name: str, key: str) -> None:
        """Register a C++ guard over the Python guard."""
        if self._library is not None:
            _check(self._library, self._library.tdf_guard(*_slot(name, key)))

    def undo(self) -> None:
        """Remove the C++ guards. The Python guards run again until they are removed too."""
        if self._library is not None:
            self._library.tdf_end_guards()
        self._library = None

    def take_refusal(self) -> Exception | None:
        """The refusal that made C++ call the Python guard on this thread, once."""
        refusal = getattr(self._refused, "error", None)
        self._refused.error = None
        return refusal

    def _ask(self, message: bytes, error_class: int) -> int:
        error = _ERRORS[error_class](message.decode(errors="replace"))
        refused = self._refusal_of(error) is not None
        self._refused.error = error if refused else None
        return int(refused)


_ERRORS = (RuntimeError, NotImplementedError, TypeError)  # in the order of `is_refused` in refusals.cpp


def _slot(name: str, key: str) -> tuple[bytes, bytes, bytes]:
    operator, _, overload = name.partition(".")
    return operator.encode(), overload.encode(), key.encode()


def _check(library: ctypes.CDLL, failed: int) -> None:
    if failed:
        raise RuntimeError(library.tdf_error().decode())


def _is_simple(gap: Gap, plan: Plan, router: Router) -> bool:
    return (
        gap.key == router.key
        and not plan.samples
        and not any(word in plan.name for word in _OTHER_TENSORS)
        and [execute for _, execute in router.chain_of(plan.name)[0]] == [cpu.run]
    )
