"""Tensors on a device that gloo cannot read cross as copies on the CPU: kernels for c10d's operators on that device.

The copy back happens when the collective is done, so asynchronous calls stay asynchronous.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from torchdevice import compat, compat_dispatcher
from torchdevice import compat_distributed as private
from torchdevice.distributed.collectives import mapped
from torchdevice.distributed.works import Following

# Their first argument is read, or is there to choose the device; of all others it is what the collective writes.
WRITE_NOTHING = frozenset({"c10d::send", "c10d::barrier", "c10d::monitored_barrier_", "c10d::check_for_nan"})

# Told of each collective: its operator, the dtypes, the seconds until it was under way, the bytes there and back.
Note = Callable[[str, tuple[str, ...], float, int], None]


def _staged(name: str, writes: bool, note: Note | None) -> Callable[..., Any]:
    operator = compat_dispatcher.find_operator(name)

    def kernel(*args: Any) -> Any:
        begun = time.perf_counter()
        copies = {id(tensor): tensor.to("cpu") for value in args for tensor in compat.tensors_in(value)}
        result = operator(*(mapped(value, lambda tensor: copies[id(tensor)]) for value in args))
        if note is not None:
            back = compat.tensors_in(args[0]) if writes else []
            moved = sum(tensor.numel() * tensor.element_size() for tensor in (*copies.values(), *back))
            dtypes = tuple(str(tensor.dtype).removeprefix("torch.") for tensor in list(copies.values())[:1])
            note(name, dtypes, time.perf_counter() - begun, moved)
        work = result[-1] if isinstance(result, tuple) else result
        if not writes or work is None:
            return result

        def finish() -> list[torch.Tensor]:
            tensors = compat.tensors_in(args[0])
            for tensor in tensors:
                tensor.copy_(copies[id(tensor)])
            return tensors

        staged = private.boxed(Following([private.unboxed_work(work)], finish))
        return (args[0], staged) if isinstance(result, tuple) else staged

    return kernel


def engage(kind: str, layout: str = "", note: Note | None = None) -> Callable[[], None]:
    """Put a kernel under every operator of c10d that the CPU has for a layout; the result takes them away."""
    names = [name for name in compat_dispatcher.kernels_under(f"{layout}CPU") if name.startswith("c10d::")]
    kernels = compat_dispatcher.Registrations()
    for name in names:
        kernel = _staged(name, name not in WRITE_NOTHING, note)
        private.overriding(kernels.add, name, f"{layout}{kind.upper()}", kernel)
    return kernels.undo
