"""Tensors on a device that gloo cannot read cross as copies on the CPU: kernels for c10d's operators on that device.

The copy back happens when the collective is done, so asynchronous calls stay asynchronous.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from torchdevice import compat
from torchdevice import compat_distributed as private
from torchdevice.distributed.collectives import mapped, tensors_in

# Their first argument is read, or is there to choose the device; of all others it is what the collective writes.
WRITE_NOTHING = frozenset({"c10d::send", "c10d::barrier", "c10d::monitored_barrier_", "c10d::check_for_nan"})

_waited_for: set[Any] = set()  # works are reached through C++, which does not keep their Python side


class Staged(dist.Work):  # type: ignore[misc]
    """A collective on copies: whoever waits for it finds the result on the device."""

    def __init__(self, inner: Any, finish: Callable[[], list[torch.Tensor]]) -> None:
        super().__init__()
        self._inner = inner
        self._finish = finish
        self._done = False
        self._future: Any = None
        _waited_for.add(self)

    def wait(self, *timeout: Any) -> bool:
        """Wait for gloo, then copy; the second time there is nothing left to do."""
        try:
            if self._future is not None:
                self._future.wait()
            elif not self._done:
                self._inner.wait(*timeout)
                self._finish()
        finally:
            self._done = True
            _waited_for.discard(self)
        return True

    def is_completed(self) -> bool:
        """Whether gloo is done."""
        return self._done or bool(self._inner.is_completed())

    def _source_rank(self) -> int:
        return int(self._inner._source_rank())

    def get_future(self) -> Any:
        """Done when the result is on the device."""
        if self._future is None:
            self._future = self._inner.get_future().then(self._copied)
            _waited_for.discard(self)
        return self._future

    def _copied(self, done: Any) -> list[torch.Tensor]:
        done.value()  # raises what gloo raised
        return self._finish()


def _staged(operator: Any, writes: bool) -> Callable[..., Any]:
    def kernel(*args: Any) -> Any:
        copies = {id(tensor): tensor.to("cpu") for value in args for tensor in tensors_in(value)}
        result = operator(*(mapped(value, lambda tensor: copies[id(tensor)]) for value in args))
        work = result[-1] if isinstance(result, tuple) else result
        if not writes or work is None:
            return result

        def finish() -> list[torch.Tensor]:
            tensors = tensors_in(args[0])
            for tensor in tensors:
                tensor.copy_(copies[id(tensor)])
            return tensors

        staged = private.boxed(Staged(private.unboxed_work(work), finish))
        return (args[0], staged) if isinstance(result, tuple) else staged

    return kernel


def engage(kind: str) -> Callable[[], None]:
    """Put a kernel under every operator of c10d that the CPU has; the result takes them away."""
    names = [name for name in compat.kernels_under("CPU") if name.startswith("c10d::")]
    kernels = compat.Registrations(kind.upper(), names)
    for name in names:
        kernel = _staged(compat.find_operator(name), name not in WRITE_NOTHING)
        private.overriding(kernels.add, name, kernel)
    return kernels.undo
