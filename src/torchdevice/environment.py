"""The one way to the settings in the environment, which says nothing where the environment is somebody else's.

A program that runs for another user (set-uid, set-gid) has its caller's environment, and under `python -I` and `-E` the
user wants it to decide nothing. What belongs to others (CUDA, NCCL, torchrun, SLURM) is read as they read it
themselves, from `os.environ`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path


def is_ours() -> bool:
    """Whether who set the environment may decide what this process does."""
    if sys.flags.ignore_environment:  # -E, and -I which includes it
        return False
    return os.name != "posix" or (os.getuid(), os.getgid()) == (os.geteuid(), os.getegid())


def environment() -> Mapping[str, str]:
    """The environment; empty where it is somebody else's."""
    return os.environ if is_ours() else {}


def home() -> Path:
    """The home of the user that this process acts for."""
    if is_ours() or os.name != "posix":
        return Path.home()
    import pwd

    return Path(pwd.getpwuid(os.geteuid()).pw_dir)
