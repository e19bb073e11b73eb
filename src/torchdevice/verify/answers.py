"""Whether what a device answers about itself is plausible: memory, events, streams, synchronize, names.

Each check runs on the namespace of the device (`torch.mps`), and under translation on the one that programs name
(`torch.cuda`), as user code. Times are compared with each other only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

import torch

from torchdevice.verify.findings import Check, Differs, Result, Skipped
from torchdevice.verify.setting import Setting, as_user_code

MIB = 1 << 20
BYTES = 32 * MIB
SLACK = 2 * MIB  # allocators round up
# Namespaces do not agree on the name of this figure.
_ALLOCATED = {"mps": "current_allocated_memory"}
_TOTAL = {"mps": "recommended_max_memory"}
Question = Callable[[str], Result]


def checks(setting: Setting) -> Iterator[Check]:
    """A row per question of `QUESTIONS`, asked of the namespace that programs of this way use."""
    for name, question in QUESTIONS.items():
        if question is is_available and setting.named not in (setting.kind, "cuda"):
            continue  # by decision a library that looks for several types of devices finds only cuda
        yield Check(name, partial(as_user_code(question), setting.named))


def is_available(kind: str) -> Result:
    """The namespace says that the device is there, and counts at least one."""
    module = getattr(torch, kind)
    if not module.is_available() or module.device_count() < 1:
        raise Differs(f"is_available() is {module.is_available()}, device_count() is {module.device_count()}")
    return Result(f"{module.device_count()} device(s)")


def memory_follows_tensors(kind: str) -> Result:
    """The allocated memory rises by the size of a tensor and falls again when it is released."""
    module = getattr(torch, kind)
    allocated = getattr(module, _ALLOCATED.get(kind, "memory_allocated"))
    small = torch.ones(1, device=kind)  # the first tensor may allocate more than itself
    module.synchronize()
    before = allocated()
    large = torch.zeros(BYTES, dtype=torch.uint8, device=kind)
    module.synchronize()
    during = allocated()
    del large
    module.synchronize()
    module.empty_cache()
    after = allocated()
    del small
    figures = {"before": before, "during": during, "after": after, "tensor": BYTES}
    if not BYTES <= during - before <= BYTES + SLACK:
        raise Differs(f"a tensor of {BYTES} bytes raised the figure by {during - before}", figures)
    if abs(after - before) > SLACK:
        raise Differs(f"after its release the figure is {after - before} bytes above the one before it", figures)
    return Result(f"rose by {during - before} bytes and fell by {during - after}", figures)


def total_memory(kind: str) -> Result:
    """The total memory is larger than what is allocated, and not absurd."""
    module = getattr(torch, kind)
    if kind in _TOTAL:
        total = getattr(module, _TOTAL[kind])()
    else:
        total = module.get_device_properties(0).total_memory
    allocated = getattr(module, _ALLOCATED.get(kind, "memory_allocated"))()
    if not allocated < total < 1 << 50 or total < 64 * MIB:
        raise Differs(f"{total} bytes in total, {allocated} allocated")
    return Result(f"{total / 2**30:.1f} GiB", {"total": total})


def out_of_memory(kind: str) -> Result:
    """A tensor larger than any memory raises an error and leaves the device usable."""
    try:
        torch.empty(1 << 55, dtype=torch.uint8, device=kind)
    except RuntimeError as error:  # torch.OutOfMemoryError is one; MPS raises a plain RuntimeError
        if torch.ones(2, device=kind).sum().item() != 2:
            raise Differs("wrong values after an allocation that failed") from error
        return Result(f"{type(error).__name__}")
    raise Differs(f"a tensor of {1 << 55} bytes was allocated")


def events_measure(kind: str) -> Result:
    """elapsed_time is not negative, and grows with the work between two events."""
    module = getattr(torch, kind)
    x = torch.randn(512, 512, device=kind)
    (x @ x).sum().item()  # compiles its kernels
    took = []
    for repeats in (1, 60):
        start, end = module.Event(enable_timing=True), module.Event(enable_timing=True)
        start.record()
        for _ in range(repeats):
            y = x @ x
        end.record()
        end.synchronize()
        module.synchronize()
        took.append(start.elapsed_time(end))
        del y
    figures = {"once": took[0], "sixty times": took[1]}
    if not 0 <= took[0] < took[1]:
        raise Differs(f"one product took {took[0]:.4f} ms, sixty {took[1]:.4f} ms", figures)
    return Result(f"one product {took[0]:.3f} ms, sixty {took[1]:.3f} ms", figures)


def events_complete(kind: str) -> Result:
    """An event is complete after synchronize."""
    module = getattr(torch, kind)
    event = module.Event(enable_timing=True)
    event.record()
    module.synchronize()
    if not event.query():
        raise Differs("query() is false after synchronize()")
    return Result()


def synchronize_waits(kind: str) -> Result:
    """After synchronize nothing is left to wait for: a second one takes less time than work and the first together."""
    module = getattr(torch, kind)
    x = torch.randn(1024, 1024, device=kind)
    module.synchronize()
    started = time.perf_counter()
    for _ in range(20):
        x = (x @ x).clamp_(-1, 1)
    module.synchronize()
    worked = time.perf_counter() - started
    started = time.perf_counter()
    module.synchronize()
    again = time.perf_counter() - started
    figures = {"work and synchronize": worked * 1e3, "synchronize again": again * 1e3}
    if again >= worked:
        raise Differs(f"the work took {worked * 1e3:.3f} ms, a second synchronize {again * 1e3:.3f} ms", figures)
    return Result(f"work {worked * 1e3:.1f} ms, a second synchronize {again * 1e3:.3f} ms", figures)


def streams_keep_order(kind: str) -> Result:
    """Work on a second stream that waits for the first sees its results."""
    module = getattr(torch, kind)
    if not hasattr(module, "Stream") or not hasattr(module, "stream"):
        raise Skipped(f"torch.{kind} has no streams")
    x = torch.ones(256, 256, device=kind)
    side = module.Stream()
    for _ in range(10):
        x = x @ x / 256
    side.wait_stream(module.current_stream())
    with module.stream(side):
        y = x * 2
    module.current_stream().wait_stream(side)
    if not torch.equal(y.cpu(), torch.full((256, 256), 2.0)):
        raise Differs("the second stream saw unfinished values")
    return Result()


def states_of_generators(kind: str) -> Result:
    """The random state of the namespace can be stored and set again."""
    module = getattr(torch, kind)
    module.manual_seed(3)
    state = module.get_rng_state()
    first = torch.rand(50, device=kind).cpu()
    module.set_rng_state(state)
    if not torch.equal(first, torch.rand(50, device=kind).cpu()):
        raise Differs("other numbers after set_rng_state of the stored state")
    return Result()


QUESTIONS: dict[str, Question] = {
    "the device is available": is_available,
    "allocated memory follows tensors": memory_follows_tensors,
    "total memory": total_memory,
    "an allocation that cannot succeed": out_of_memory,
    "events measure time": events_measure,
    "events complete": events_complete,
    "synchronize waits": synchronize_waits,
    "streams keep their order": streams_keep_order,
    "random states": states_of_generators,
}
