"""Runs a test's body in a process of its own that has a virtual device: `@on("cuda:2")` above a test function.

With TORCHDEVICE_TEST_ON=cuda the real CUDA computes for the virtual `mps` and `xpu`. With
TORCHDEVICE_TEST_ON=virtual-xpu another virtual device computes, on a machine without an accelerator. It has no backward
of the fused cells of recurrent networks, so their tests fail there.
"""

from __future__ import annotations

import functools
import importlib
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

from tests import children
from tests.checkout import ROOT, source_paths

BACKING = os.environ.get("TORCHDEVICE_TEST_ON", "")
COMPUTING = BACKING.removeprefix("virtual-")
TIMEOUT = int(os.environ.get("TORCHDEVICE_TEST_SECONDS", "240"))  # sanitizers take longer


def environment(**more: str) -> dict[str, str]:
    """This checkout's sources, one thread, none of the caller's settings, then `more`."""
    paths = source_paths()
    base = {k: v for k, v in os.environ.items() if not k.startswith("TORCHDEVICE") or k == "TORCHDEVICE_CACHE"}
    return {**base, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", **more}


def run_python(
    *arguments: str, env: dict[str, str] | None = None, timeout: int = TIMEOUT
) -> subprocess.CompletedProcess[str]:
    """A fresh interpreter with this checkout's sources; the result, whatever it is."""
    full = environment(**(env or {}))
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=full, capture_output=True, text=True, timeout=timeout, check=False
    )


def on(
    device: str, env: dict[str, str] | None = None, only_cpu: str = ""
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The body runs in a child process where `device` (as in TORCHDEVICE_VIRTUAL) is installed; "" installs nothing.

    `only_cpu` says why the test holds only if the CPU computes for the device.
    """

    def decorate(body: Callable[..., None]) -> Callable[..., None]:
        @pytest.mark.virtual
        @functools.wraps(body)
        def test(**parameters: Any) -> None:
            if BACKING and device and (only_cpu or device.startswith(COMPUTING)):
                pytest.skip(only_cpu or f"{COMPUTING} computes")
            name = f"{body.__module__}:{body.__name__}"
            full = environment(**({"TORCHDEVICE_TEST_ON": BACKING} if BACKING else {}), **(env or {}))
            if device and COMPUTING == BACKING != "":
                full.pop("CUDA_VISIBLE_DEVICES", None)  # which tests/conftest.py sets to hide the GPU
            done = children.run_module(
                "tests.virtual.harness",
                device,
                name,
                repr(parameters),
                environment=full,
                timeout=TIMEOUT,
            )
            assert done.returncode == 0, (
                f"{name} on {device} (exit {done.returncode})\n{done.stdout}\n{done.stderr[-6000:]}"
            )

        test.body = body  # type: ignore[attr-defined]
        return test

    return decorate


def install(device: str) -> None:
    """The virtual device, and what computes for it in this run of the tests."""
    from tests.virtual import backed
    from torchdevice import virtual

    on_top = f"{device}@{COMPUTING}" if COMPUTING and "@" not in device else device
    with backed.accelerator(COMPUTING, count=3) if BACKING != COMPUTING else nullcontext():
        virtual.from_environment(on_top)


def main() -> None:
    device, name, parameters = sys.argv[1:4]
    if device:
        install(device)
    module, _, function = name.partition(":")
    getattr(importlib.import_module(module), function).body(**eval(parameters))


if __name__ == "__main__":
    main()
