"""`torchdevice run`: replaces itself with Python, in an environment in which `import torch` activates TorchDevice.

No code of ours runs between the interpreter and the program, so the program starts exactly as under `python`. Inside
its process `autoload` and `run_child` do the work.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import entry_points

from torchdevice.cli.choosing import choose, folders_of_commands
from torchdevice.cli.parsing import Parser
from torchdevice.config import (
    AUTO,
    FALLBACKS,
    FLOAT64,
    MPS_WORKAROUNDS,
    ON_OOM,
    PACKAGES,
    PLACES,
    POLICIES,
    POLICY_REASON,
    PROFILE,
    RUN_CACHE,
    cache_folder,
)
from torchdevice.environment import environment
from torchdevice.errors import ConfigError
from torchdevice.reporting.destinations import REPORT, SUMMARY, TEXT, TRACE, is_destination, parse
from torchdevice.reporting.spool import RUN, new_folder

_VALUED = ("--target", "--policy", "--as", "--virtual", "--fallback", "--float64", "--on-oom", "--place")
# The folder of a package that is not installed, and a folder whose metadata holds its entry point for torch.
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CHECKOUT = (os.path.dirname(_PACKAGE), os.path.join(_PACKAGE, "checkout"))
# `--strict` refuses everything that would not run as written.
STRICT = {"fallback": "off", "float64": "error"}
# Times of operators are right only if CUDA launches synchronously. The variable is CUDA's.
PROFILED = {PROFILE: "1", "CUDA_LAUNCH_BLOCKING": "1"}
_LEVELS = {1: "INFO", 2: "DEBUG"}
_LONGEST_START = 512
# pip writes the second form if the path of the interpreter is long or has a space.
_PYTHON_COMMAND = re.compile(rb"#!.*python|#!/bin/sh\n'{3}exec' .*python")


def parser() -> Parser:
    """Options come before the program; everything after it belongs to the program."""
    parser = Parser(
        "run",
        "Run an unmodified program and translate the device requests that it and its child processes make.",
        ["torchdevice run train.py --epochs 3", "torchdevice run --virtual cuda:2 --report html:out.html -m my.train"],
        usage="torchdevice run [options] (SCRIPT | -m MODULE | -c CODE | -) [arguments…]",
        add_help=False,
    )
    parser.add_argument("-h", "--help", action="help", help=argparse.SUPPRESS)  # the help must fit a screen of 24 lines
    parser.add_argument("--target", metavar="TYPE", help="device type to compute on (default: the accelerator)")
    parser.add_argument(
        "--policy",
        choices=(AUTO, *POLICIES),
        metavar="NAME",
        help="what is redirected: accelerate, portable, auto (default: auto)",
    )
    devices = parser.add_mutually_exclusive_group()
    devices.add_argument(
        "--as",
        dest="as_",
        metavar="DEV[:n][@WHAT]",
        help="n virtual devices of a type, computed by this machine's accelerator",
    )
    devices.add_argument("--virtual", metavar="DEV[:n][:real]", help="n virtual devices, computed by the CPU")
    parser.add_argument(
        "--fallback",
        choices=FALLBACKS,
        metavar="CHAIN",
        help="what runs operators that the target lacks: cpu, mlx,cpu, off",
    )
    parser.add_argument(
        "--float64", choices=FLOAT64, metavar="WAY", help="if the target has none: downcast, cpu, error"
    )
    parser.add_argument("--on-oom", choices=ON_OOM, metavar="WAY", help="if memory runs out: retry, cpu, raise")
    parser.add_argument(
        "--place", choices=PLACES, metavar="WAY", help="cuda without an index: current, free (most memory)"
    )
    parser.add_argument("--no-packages", action="store_true", help="no stand-ins for flash_attn, xformers, triton …")
    parser.add_argument("--no-mps-workarounds", action="store_true", help="call MPS also where it returns wrong values")
    parser.add_argument("--strict", action="store_true", help="the same as --fallback off --float64 error")
    parser.add_argument(
        "--report",
        metavar="FORM",
        action="append",
        help="report as text, json:PATH, html:PATH, trace:PATH; repeatable",
    )
    parser.add_argument("--profile", action="store_true", help="measure time and memory per operator and per line")
    parser.add_argument("-v", action="count", default=0, help="log each redirected place once (-vv: more)")
    parser.add_argument("-q", action="store_true", help="do not print the summary line")
    return parser


def main(words: Sequence[str]) -> int:
    """Start the program. Returns only on `--help`, or where a process cannot be replaced."""
    ours, program = split(words)
    parsing = parser()
    options = parsing.parse_args(ours)
    if not program:
        parsing.error("no program given: a script, -m MODULE, -c CODE or -")
    if len(program) == 1 and program[0] in ("-m", "-c"):
        parsing.error(f"{program[0]} needs an argument")
    program[0] = installed_command(program[0])
    named = os.path.basename(program[0])
    if re.fullmatch(r"python(\d(\.\d+)?)?", named) and (named != program[0] or not os.path.exists(named)):
        parsing.error(f"{program[0]} is not a program; name only the script: torchdevice run train.py")
    if program[0].endswith((".html", ".json")):
        form = program[0].rpartition(".")[2]
        parsing.error(f"{program[0]} is not a program; write a report with --report {form}:{program[0]}")
    if options.strict:
        for name, refused in STRICT.items():
            if getattr(options, name) not in (None, refused):
                parsing.error(f"--strict means --{name} {refused}, but --{name} {getattr(options, name)} was given")
    try:
        environment = os.environ | settings(options) | policy(options, program)
    except ConfigError as error:
        parsing.error(str(error).replace("\n", " "))
    if not any(point.value.startswith("torchdevice.") for point in entry_points(group="torch.backends")):
        if sys.flags.ignore_environment:  # python -E, python -I
            parsing.error("torchdevice is importable but not installed, so programs cannot find it; pip install it")
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), *CHECKOUT]))
    command = [sys.executable, *interpreter_flags(sys.orig_argv, sys.argv), *program]
    if os.name == "posix":
        sys.stdout.flush()
        sys.stderr.flush()
        os.execve(sys.executable, command, environment)
    return subprocess.call(command, env=environment)


def split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Our options, and the program with its arguments."""
    ours: list[str] = []
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] not in ("-", "-m", "-c"):
        word = rest.pop(0)
        if word == "--":
            break
        if word == "--report":  # its value is optional
            word = f"--report={rest.pop(0) if rest and is_destination(rest[0]) else TEXT}"
        ours.append(word)
        if word in _VALUED and rest:
            ours.append(rest.pop(0))
    return ours, rest


def installed_command(word: str) -> str:
    """The path of a command that a package has installed for this Python (`torchrun`), else the word itself."""
    if os.path.exists(word) or os.path.basename(word) != word:
        return word
    for folder in folders_of_commands():
        path = folder / word
        if path.is_file():
            with path.open("rb") as file:
                if _PYTHON_COMMAND.match(file.read(_LONGEST_START)):
                    return str(path)
    return word


def interpreter_flags(whole: Sequence[str], words: Sequence[str]) -> list[str]:
    """The interpreter's options in `python -X dev -m torchdevice …`, which are meant for the program."""
    flags = list(whole[1 : len(whole) - len(words)])
    if flags and flags[-1].startswith("-") and flags[-1].endswith("m"):  # -m, or -um for -u -m
        last = flags.pop()[:-1]
        flags += [last] if last != "-" else []
    return flags


def settings(options: argparse.Namespace) -> dict[str, str]:
    """The environment variables that pass the options to the program and its child processes."""
    given = {
        "TORCHDEVICE": "1",
        "TORCHDEVICE_TARGET": options.target,
        "TORCHDEVICE_VIRTUAL": _virtual(options),
        "TORCHDEVICE_FALLBACK": options.fallback or (STRICT["fallback"] if options.strict else None),
        "TORCHDEVICE_FLOAT64": options.float64 or (STRICT["float64"] if options.strict else None),
        "TORCHDEVICE_ON_OOM": options.on_oom,
        "TORCHDEVICE_PLACE": options.place,
        PACKAGES: "0" if options.no_packages else "1",
        MPS_WORKAROUNDS: "0" if options.no_mps_workarounds else None,
        "TORCHDEVICE_LOG_LEVEL": _LEVELS.get(min(options.v, 2)),
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "1",  # torch's own switch for entry points such as ours
        RUN: new_folder(),
        RUN_CACHE: os.path.abspath(cache_folder()),
        REPORT: _destinations(options),
        **(PROFILED if options.profile or _traced(options) else {}),
    }
    return {name: value for name, value in given.items() if value is not None}


def policy(options: argparse.Namespace, program: Sequence[str]) -> dict[str, str]:
    """The variables for the policy: the one that was given, or the one that suits the program, with the reason."""
    given = options.policy or environment().get("TORCHDEVICE_POLICY") or AUTO
    if given == AUTO and options.as_:
        return {"TORCHDEVICE_POLICY": "portable", POLICY_REASON: "--as keeps host and device apart"}
    if given != AUTO:
        return {"TORCHDEVICE_POLICY": given, POLICY_REASON: ""}
    choice = choose(program)
    return {"TORCHDEVICE_POLICY": choice.policy, POLICY_REASON: choice.reason}


def _virtual(options: argparse.Namespace) -> str | None:
    if options.as_ is None:
        return options.virtual
    return options.as_ if "@" in options.as_ else f"{options.as_}@auto"


def _traced(options: argparse.Namespace) -> bool:
    return any(destination.form == TRACE for destination in parse(",".join(options.report or ())))


def _destinations(options: argparse.Namespace) -> str:
    destinations = parse(",".join(options.report or ()))
    for destination in destinations:
        if destination.path and not os.path.isdir(os.path.dirname(destination.path)):
            raise ConfigError(f"the folder of the report {destination.path} does not exist")
    return ",".join([*map(str, destinations), *([] if options.q else [SUMMARY])])
