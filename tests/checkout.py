"""Where this checkout is, and how processes find it: its sources, and its entry point where it is not installed."""

from __future__ import annotations

import os
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
# A folder that has the entry point by which `import torch` finds the package.
ENTRY_POINT = ROOT / "src" / "torchdevice" / "checkout"


def _is_installed() -> bool:
    """Outside this checkout: the entry point that a checkout was given does not count."""
    found = [point for point in entry_points(group="torch.backends") if point.name == "torchdevice"]
    return any(point.dist is None or Path(str(point.dist.locate_file(""))) != ENTRY_POINT for point in found)


def source_paths() -> list[str]:
    """Of this checkout; where it is not installed, with its entry point."""
    return [str(ROOT / "src"), str(ROOT), *([] if _is_installed() else [str(ENTRY_POINT)])]


def installed_packages() -> list[Path]:
    """Folders of installed packages: a virtual environment may see those of another one beside its own."""
    return [Path(path) for path in dict.fromkeys(sys.path) if path.endswith(("site-packages", "dist-packages"))]


def give_it_an_entry_point() -> None:
    """A package that is not installed but on PYTHONPATH has none: this process and those that it starts get one."""
    if not _is_installed():
        given = os.environ.get("PYTHONPATH", "")
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (given, *source_paths())))
        sys.path.append(str(ENTRY_POINT))
