"""The command `torchdevice`: finds the subcommand and calls its module. Does not import torch.

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
    "run": "run a program, and its child processes, with translation active",
    "explain": "show what a device request becomes on this or another machine, and why",
    "doctor": "check this installation and suggest a fix for each problem",
    "scan": "find code that depends on CUDA in a source tree, without running it",
    "catalog": "list every public function of torch, and whether and how it works here",
    "virtual": "build, show or remove the library that virtual devices use",
    "ops": "list where each operator runs, here or on another device: native, guarded, mlx or cpu",
    "calibrate": "measure MLX against the CPU, so that each fallback uses the faster one",
    "bench": "measure the overhead of TorchDevice on this machine",
    "verify": "check the accelerator of this machine, and write a file for an issue",
    "env": "print facts for a bug report",
}

HELP = """usage: torchdevice COMMAND …
       torchdevice SCRIPT …            the same as `torchdevice run SCRIPT …`

Runs unmodified PyTorch code, written for one accelerator, on the device that this machine has.

{commands}

`torchdevice COMMAND --help` describes a command. `torchdevice --version` prints the version.

examples:
  torchdevice run train.py --epochs 3
  torchdevice explain cuda:1 --host mps
"""


GONE = 128 + 13  # the status that shells report for a program that SIGPIPE ended


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status. `run` returns only where a process cannot be replaced."""
    try:
        status = _run(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:  # the reader has closed the pipe: torchdevice ops | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more at exit
        return GONE
    return status


def _run(arguments: Sequence[str] | None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a console without arrows and check marks must not fail
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
    except ConfigError as error:  # from the environment; commands report errors in their arguments themselves
        usage_error("torchdevice", str(error).replace("\n", " "))
    return status


def _is_program(word: str) -> bool:
    """Whether `torchdevice WORD` without `run` means a program: an option, a file, or a word that looks like one.

    Python reports a file that does not exist.
    """
    return word.startswith("-") or word.endswith(".py") or os.path.exists(word)
