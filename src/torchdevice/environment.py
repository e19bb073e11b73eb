"""Reads our settings from the environment, and ignores an environment that must not be trusted.

A set-uid or set-gid program gets its environment from another user, and `python -I` and `-E` ask to ignore it. The
variables of others (CUDA, NCCL, torchrun, SLURM) are read directly from `os.environ`, as their owners do.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path


def is_ours() -> bool:
    """Whether the environment may configure this process."""
    if sys.flags.ignore_environment:  # -E, and -I which includes it
        return False
    return os.name != "posix" or (os.getuid(), os.getgid()) == (os.geteuid(), os.getegid())


def environment() -> Mapping[str, str]:
    """The environment; empty if it must be ignored."""
    return os.environ if is_ours() else {}


def home() -> Path:
    """The home folder of the user that this process runs as."""
    if is_ours() or os.name != "posix":
        return Path.home()
    import pwd

    return Path(pwd.getpwuid(os.geteuid()).pw_dir)
