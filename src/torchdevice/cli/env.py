"""`torchdevice env`: facts to paste into a bug report. Nothing about the user: no paths, no host name."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version

from torchdevice import __version__
from torchdevice.cli.parsing import Parser

PACKAGES = ("torch", "numpy", "mlx", "transformers", "lightning", "accelerate", "rich", "psutil")
VARIABLES = ("TORCH", "PYTORCH", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS")
NOT_SHOWN = ("TORCHDEVICE_RUN", "TORCHDEVICE_CACHE")  # folders of the user


def parser() -> Parser:
    """No options."""
    return Parser(
        "env",
        "Print facts about this installation, to paste into a bug report.",
        ["torchdevice env", "torchdevice env | pbcopy"],
    )


def main(words: Sequence[str]) -> int:
    """Print one fact a line."""
    parser().parse_args(words)
    for name, value in facts():
        print(f"{name:<20} {value}")
    return 0


def facts() -> Iterator[tuple[str, str]]:
    """Names and values."""
    yield "torchdevice", __version__
    yield "python", f"{sys.version.split()[0]} ({platform.python_implementation()})"
    yield "platform", f"{platform.system()} {platform.release()} {platform.machine()}"
    for package in PACKAGES:
        try:
            yield package, version(package)
        except PackageNotFoundError:
            yield package, "not installed"
    import torch

    from torchdevice.policy.hosts import this_host
    from torchdevice.virtual import info

    host = this_host()
    yield "torch git", str(torch.version.git_version)
    yield "torch built for", f"CUDA {torch.version.cuda}" if torch.version.cuda else "no CUDA"
    yield "accelerator", f"{host.type} × {host.count}" if host.accelerated else "none"
    virtual = info()
    yield "compiler", virtual["compiler_version"] or "none"
    yield "virtual library", "built" if virtual["built"] else "not built"
    for name in sorted(os.environ):
        if name.startswith(VARIABLES) and name not in NOT_SHOWN:
            yield name, os.environ[name]
