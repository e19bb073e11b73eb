"""The time per call of the functions of torch.cuda, torch.mps, torch.xpu and torch.accelerator, with a small and a
large heap.

Each public function that needs no argument is measured in a process with few objects and in one with a million. On a
host with a real accelerator, plain torch is measured in another process.
"""

from __future__ import annotations

import argparse
import inspect
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

import torchdevice
from torchdevice.bench.runner import Figure, emit
from torchdevice.policy.hosts import this_host
from torchdevice.virtual import build

NAMESPACES = ("cuda", "mps", "xpu", "accelerator")
LIMIT_US = 50.0
OBJECTS = 1_000_000
SECONDS = 0.01  # the measuring time per function
MOST_CALLS = 200
# Functions without a limit, with the reason: they wait, read files or free memory, or torch builds a table first.
_TABLE = "torch makes a table of all figures first"
_SYSTEM = "asks the driver or the system"
_RESERVED = "memory_reserved max_memory_reserved memory_cached max_memory_cached"
WORKING = {
    "memory_stats": _TABLE,
    **dict.fromkeys(_RESERVED.split(), "reads the memory of the process"),
    "synchronize": "waits",
    "empty_cache": "gives memory back",
    "empty_host_cache": "gives memory back",
    "ipc_collect": "gives memory back",
    "list_gpu_processes": _SYSTEM,
    "memory_summary": "prints a table",
    "memory_snapshot": "lists every block",
    "get_arch_list": "reads what torch was compiled for",
    "get_gencode_flags": "reads what torch was compiled for",
    "seed": "asks the system for random numbers",
    "seed_all": "asks the system for random numbers",
    "get_rng_state": "copies a state",
    "get_rng_state_all": "copies a state",
    "mem_get_info": _SYSTEM,
    "memory_usage": _SYSTEM,
    "device_memory_used": _SYSTEM,
    "memory_stats_as_nested_dict": "reads the peak of the process",
    "reset_peak_memory_stats": "the kernel begins a new peak",
    "reset_max_memory_allocated": "the kernel begins a new peak",
    "reset_max_memory_cached": "the kernel begins a new peak",
    "temperature": "reads a sensor",
    "clock_rate": "reads the clock of each core",
}
# On an accelerator, its own module answers.
_FIGURES = "memory_allocated max_memory_allocated current_allocated_memory driver_allocated_memory"
WORKING_THERE = WORKING | dict.fromkeys(f"{_RESERVED} {_FIGURES}".split(), _TABLE)


def questions() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Public functions that need no argument, by their path."""
    for namespace in NAMESPACES:
        module = getattr(torch, namespace)
        for name in sorted(vars(module)):
            value = getattr(module, name)
            if name.startswith("_") or not inspect.isroutine(value) or not _is_of(value, namespace):
                continue
            try:
                parameters = inspect.signature(value).parameters.values()
            except ValueError:  # a builtin without a signature
                continue
            if all(p.default is not p.empty or p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters):
                yield f"torch.{namespace}.{name}", value


def _is_of(function: Any, namespace: str) -> bool:
    """Whether a function belongs to the module and is not only imported by it."""
    return str(getattr(function, "__module__", "")).startswith((f"torch.{namespace}", "torch._C", "torchdevice"))


def microseconds(function: Callable[[], Any]) -> float | None:
    """The time of the fastest call. None if the function raises an error here."""
    try:
        function()  # the first call is not measured, because it may fill caches
    except Exception:  # each function raises its own error if the device does not support it
        return None
    best = float("inf")
    end = time.perf_counter() + SECONDS
    for _ in range(MOST_CALLS):
        start = time.perf_counter()
        function()
        now = time.perf_counter()
        best = min(best, now - start)
        if now > end:
            break
    return best * 1e6


def measure(side: str, objects: int) -> None:
    """Measures all functions in this process and prints JSON to stdout."""
    if side == "active":
        torchdevice.activate()
    heap = [[number] for number in range(objects)]
    found = {path: microseconds(function) for path, function in questions()}
    print(json.dumps({path: taken for path, taken in found.items() if taken is not None}))
    del heap


def in_a_process(side: str, objects: int) -> dict[str, float]:
    command = [sys.executable, "-W", "ignore", "-m", __spec__.name, "--in", side, "--objects", str(objects)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    """Rows on stdout."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the same: it takes seconds")
    parser.add_argument("--in", dest="side")
    parser.add_argument("--objects", type=int, default=0)
    options = parser.parse_args()
    if options.side:
        measure(options.side, options.objects)
        return
    if this_host().type == "cpu":
        build.build(build.COUNTING)
    small, large = in_a_process("active", 0), in_a_process("active", OBJECTS)
    real = torch.accelerator.current_accelerator(check_available=True)
    plain = in_a_process("plain", OBJECTS) if real is not None else {}
    reasons = WORKING if real is None else WORKING_THERE
    shared = [path for path in large if path in small]
    slowest = max((path for path in shared if path.rpartition(".")[2] not in reasons), key=lambda path: large[path])
    note = f"{len(shared)} functions, the slowest is {slowest}"
    emit([Figure("slowest answer, a million objects in the heap", large[slowest], "µs", LIMIT_US, note=note)])
    own = [path for path in shared if reasons.get(path.rpartition(".")[2]) != _SYSTEM]  # its time varies
    grown = max(large[path] - small[path] for path in own)
    emit([Figure("added to an answer by a million objects, the most", grown, "µs", LIMIT_US)])
    for path in sorted(shared, key=lambda path: -large[path]):
        if large[path] <= LIMIT_US and path != slowest:
            break
        reason = reasons.get(path.rpartition(".")[2], "")
        there = f"{plain[path]:.1f} µs in plain torch" if path in plain else ""
        note = "; ".join(filter(None, (reason, f"{small[path]:.1f} µs with few objects", there)))
        emit([Figure(path, large[path], "µs", None if reason else LIMIT_US, note=note)])


if __name__ == "__main__":
    main()
