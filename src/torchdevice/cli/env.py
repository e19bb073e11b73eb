"""`torchdevice env`: facts for a bug report. Prints nothing about the user: no paths, no host name."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version

from torchdevice import __version__
from torchdevice.cli.parsing import Parser
from torchdevice.config import DEVICE_COUNT, PROFILE, SETTINGS, SWITCHES
from torchdevice.printable import printable

PACKAGES = ("torch", "numpy", "mlx", "transformers", "lightning", "accelerate", "rich", "psutil")
# The only variables whose values TorchDevice prints (also in `doctor`); docs/cli.md lists them. For other variables of
# torch only the name is printed, because values can be folders of the user, hosts or tokens.
SHOWN = (
    "TORCHDEVICE",
    *(setting.variable for setting in SETTINGS),
    DEVICE_COUNT,
    PROFILE,
    "TORCHDEVICE_ENABLED",
    *SWITCHES.values(),
    "TORCHDEVICE_VIRTUAL",
    "TORCHDEVICE_VIRTUAL_MEMORY",
    "TORCH_ALLOW_REDIRECTS",
    "TORCH_DEVICE_BACKEND_AUTOLOAD",
    "PYTORCH_ENABLE_MPS_FALLBACK",
    "PYTORCH_MPS_HIGH_WATERMARK_RATIO",
    "CUDA_VISIBLE_DEVICES",
    "OMP_NUM_THREADS",
)
NAMED = ("TORCH", "PYTORCH")  # prefixes of the others


def parser() -> Parser:
    """No options."""
    return Parser(
        "env",
        "Print facts about this installation for a bug report.",
        ["torchdevice env", "torchdevice env | pbcopy"],
    )


def main(words: Sequence[str]) -> int:
    """Print one fact per line."""
    parser().parse_args(words)
    for name, value in facts():
        print(f"{printable(name):<20} {printable(value)}")
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
        if name in SHOWN:
            yield name, os.environ[name]
        elif name.startswith(NAMED):
            yield name, "(set)"
