"""Starts programs under torchrun, each rank a process of its own, and tells afterwards whether any is left."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil

from tests.checkout import ROOT, source_paths

LAUNCH = ("-m", "torch.distributed.run")


def environment(**more: str) -> dict[str, str]:
    """This checkout, nothing of the caller's settings, one thread per process."""
    settings = ("TORCHDEVICE", "NCCL_")  # an image of NVIDIA's sets NCCL_VERSION
    kept = {k: v for k, v in os.environ.items() if not k.startswith(settings) or k == "TORCHDEVICE_CACHE"}
    paths = os.pathsep.join(source_paths())
    return {**kept, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", **more}


def run(*arguments: str, timeout: int = 240, **more: str) -> subprocess.CompletedProcess[str]:
    """A fresh interpreter; the result, whatever it is."""
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(
        command, cwd=ROOT, env=environment(**more), capture_output=True, text=True, timeout=timeout, check=False
    )


def torchrun(processes: int | str, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """torchrun with a rendezvous of its own."""
    return run(*LAUNCH, "--standalone", f"--nproc-per-node={processes}", *arguments, **more)


def left_running(marker: str) -> list[psutil.Process]:
    """Processes whose command line has `marker` in it."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if any(marker in word for word in process.info["cmdline"] or ()) and process.pid != os.getpid():
            found.append(process)
    return found
