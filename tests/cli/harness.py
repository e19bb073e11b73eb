"""Programs in processes of their own: the same one under Python and under us."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

SUMMARY = "torchdevice: "
SECONDS = 300


def clean_environment(**extra: str) -> dict[str, str]:
    """This process's environment without any setting of ours, then `extra`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TORCHDEVICE")}
    if "TORCHDEVICE_CACHE" in os.environ:
        kept["TORCHDEVICE_CACHE"] = os.environ["TORCHDEVICE_CACHE"]
    return kept | {"OMP_NUM_THREADS": "1"} | extra


def python(
    *arguments: str | Path,
    cwd: Path | None = None,
    stdin: str = "",
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Python with these arguments."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        input=stdin,
        capture_output=True,
        text=True,
        cwd=cwd,
        env=clean_environment(**(environment or {})),
        timeout=SECONDS,
        check=False,
    )


def torchdevice(
    *arguments: str | Path,
    cwd: Path | None = None,
    stdin: str = "",
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """The command `torchdevice` with these arguments."""
    return python("-m", "torchdevice", *arguments, cwd=cwd, stdin=stdin, environment=environment)


def without_summary(stderr: str) -> tuple[str, list[str]]:
    """What the program wrote, and our lines."""
    lines = stderr.splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith(SUMMARY)), [
        line.rstrip() for line in lines if line.startswith(SUMMARY)
    ]


def write(folder: Path, files: Mapping[str, str]) -> Path:
    """Files by name, with their text."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder
