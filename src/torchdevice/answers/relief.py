"""Frees memory when the target is full, so that the call can be tried once more (`on_oom`).

The allocators of torch empty their own caches and try again before they raise an error. They do not collect Python's
garbage: tensors in reference cycles, which are common after an exception and in objects with callbacks. That is done
here, and the cache is emptied again after it.

`translate.shortage` asks for it in wrapped calls, on every target. Allocators in C++ that are our own (of virtual
devices, and of a CPU with a limit) ask for it in the middle of an operator and then repeat only the allocation, which
has no side effects. An operator of a real accelerator cannot be repeated: it may have written a part of its result, and
no code of ours surrounds it.
"""

from __future__ import annotations

import gc
import sys
import threading

from torchdevice.answers.failures import OutOfMemory, is_out_of_memory
from torchdevice.answers.real import Real
from torchdevice.ledger import Shortage, renew_after_fork, shortages
from torchdevice.translate.callers import site_of, user_frame
from torchdevice.translate.translator import Translator

OPERATOR = "an operator"
TRIED_AGAIN = "memory freed, tried again"
ON_CPU = "converted on the CPU"
IN_HOST_MEMORY = "computed in memory of the host"

# The answers to C++: see `ReliefAnswer` in device.h.
RAISE, TRY_AGAIN, USE_HOST = range(3)
# A finalizer may wait for a lock of a thread that runs out of memory, too. Then an error is better than a deadlock.
MOST_SECONDS = 30.0


class _Collector(threading.Thread):
    """Collects garbage. A finalizer that runs out of memory in it is not relieved: it would wait for itself."""


class _Collections:
    """Collects garbage in a thread of its own, for all threads of the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        renew_after_fork(self, "_lock")

    def collect_here(self) -> None:
        """Collect garbage in this thread, which is in no operator, after other threads have done so."""
        held = self._lock.acquire(timeout=MOST_SECONDS)
        try:
            gc.collect()
        finally:
            if held:
                self._lock.release()

    def collect(self) -> bool:
        """Collect garbage in another thread. Returns False if this is not possible.

        The calling thread is inside an operator. Finalizers must not run with its state: dispatch keys, the device that
        computes. Only one thread at a time: `gc.collect` returns at once while another thread collects.
        """
        if not self._lock.acquire(timeout=MOST_SECONDS):
            return False
        try:
            collector = _Collector(target=gc.collect, name="torchdevice-relief", daemon=True)
            collector.start()
            collector.join(MOST_SECONDS)
        except RuntimeError:  # a thread needs memory, too
            return False
        finally:
            self._lock.release()
        return True


_collections = _Collections()


class Relief:
    """Frees memory of one target and records it. `on_cpu`: calls may use the CPU if that is not enough."""

    def __init__(self, translator: Translator, target: Real, on_cpu: bool) -> None:
        self._translator = translator
        self._target = target
        self.on_cpu = on_cpu

    def applies(self, error: BaseException) -> bool:
        """Whether the error says that the target is full, and its allocator has not asked for relief itself."""
        asked_already = self._target.type == "cpu" and type(error) is OutOfMemory  # a limit was reached
        return is_out_of_memory(error, self._target.type) and not asked_already

    def free(self, api: str) -> None:
        """Free memory before a call is tried again."""
        self._note(api, TRIED_AGAIN)
        _collections.collect_here()
        self._target.empty_cache()

    def note_on_cpu(self, api: str) -> None:
        """Record that a call used the CPU."""
        self._note(api, ON_CPU)

    def asked(self, device: int, size: int, attempt: int) -> int:
        """The answer to an allocator in C++. Attempt 1 comes after memory was freed and was not enough."""
        if sys.is_finalizing() or not self._translator.in_force:
            return RAISE
        if attempt:
            if self.on_cpu:
                self._note(OPERATOR, IN_HOST_MEMORY)
            return USE_HOST if self.on_cpu else RAISE
        if isinstance(threading.current_thread(), _Collector) or not _collections.collect():
            return RAISE
        self._note(OPERATOR, TRIED_AGAIN)
        return TRY_AGAIN

    def asked_by_counter(self, size: int) -> bool:
        """The same for the counter of CPU memory."""
        return self.asked(0, size, 0) == TRY_AGAIN

    def _note(self, api: str, given: str) -> None:
        roles, kind = self._translator.roles, self._target.type
        place = user_frame(sys._getframe(), roles)
        shortages.count(place, (api, kind, given), lambda _: Shortage(api, kind, given, site_of(place, roles)))
