"""The command `torchdevice`: finds the command that is meant and hands over to its file. Imports no torch.

A command is a row in `COMMANDS` and a module beside this file with two functions: `parser()` and `main(words)`.
"""

from __future__ import annotations

import difflib
import importlib
import io
import os
import sys
from collections.abc import Sequence

from torchdevice import __version__
from torchdevice.cli.parsing import usage_error
from torchdevice.errors import ConfigError

COMMANDS = {
    "run": "run a program with translation active, in it and in its children",
    "explain": "what a request for a device becomes here, or on another machine, and why",
    "doctor": "check this installation; every problem comes with its fix",
    "scan": "find what binds a source tree to CUDA, without running it",
    "catalog": "every public function of torch: does it work here, and how",
    "virtual": "build, show or remove the library behind virtual devices",
    "ops": "where each operator runs here, or on another device: native, guarded, mlx or cpu",
    "calibrate": "measure MLX against the CPU, so that fallbacks run where they are faster",
    "bench": "measure what TorchDevice costs on this machine",
    "env": "facts to paste into a bug report",
}

HELP = """usage: torchdevice COMMAND …
       torchdevice SCRIPT …            the same as `torchdevice run SCRIPT …`

Runs PyTorch code written for one accelerator on the one that is there, unedited.

{commands}

`torchdevice COMMAND --help` tells more; `torchdevice --version` the version.

examples:
  torchdevice run train.py --epochs 3
  torchdevice explain cuda:1 --host mps
"""


GONE = 128 + 13  # as shells report a program that SIGPIPE ended


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit status. `run` does not return where the platform can replace a process."""
    try:
        status = _run(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:  # who reads has seen enough: torchdevice ops | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more at its end
        return GONE
    return status


def _run(arguments: Sequence[str] | None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # arrows and check marks must not end a command on an old console
            stream.reconfigure(errors="replace")
    if not words or words[0] in ("-h", "--help"):
        listed = "\n".join(f"  {name:<11}{about}" for name, about in COMMANDS.items())
        (sys.stdout if words else sys.stderr).write(HELP.format(commands=listed))
        return 0 if words else 2
    if words[0] in ("-V", "--version"):
        print(f"torchdevice {__version__}")
        return 0
    name = words[0]
    if name in COMMANDS:
        words = words[1:]
    elif _is_program(name):
        name = "run"
    else:
        close = difflib.get_close_matches(name, COMMANDS, n=1)
        usage_error("torchdevice", f"no command or script {name!r}" + (f", did you mean {close[0]}?" if close else ""))
    module = importlib.import_module(f"torchdevice.cli.{name}")
    try:
        status: int = module.main(words)
    except ConfigError as error:  # of the environment: commands say by themselves what is wrong with their words
        usage_error("torchdevice", str(error).replace("\n", " "))
    return status


def _is_program(word: str) -> bool:
    """`torchdevice x` without `run`: options, files, and what looks like one (Python says if it is missing)."""
    return word.startswith("-") or word.endswith(".py") or os.path.exists(word)
