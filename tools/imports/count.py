"""Counts what wheels import from packages that need CUDA, and writes it to counted.json.

pip download --no-deps --only-binary :all: -d FOLDER NAME …
python -m tools.imports.count FOLDER

A name counts once per file: `from apex import amp`, or `xops.unbind` after `import xformers.ops as xops`.
The files of a package itself do not count, nor do files that lie in two wheels under the same path with the same text.
"""

from __future__ import annotations

import argparse
import ast
import collections
import datetime
import hashlib
import json
import warnings
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tools.imports.packages import COUNTED

DATA = Path(__file__).parent / "counted.json"
SEEN = Path(__file__).parent / "seen.json"  # typed from searches; nothing writes it


def imported(source: str) -> set[str]:
    """The full names that a module takes from a counted package, through an alias too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # escapes of other people's strings
        tree = ast.parse(source)
    found: set[str] = set()
    modules: dict[str, str] = {}  # what a local name means
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level and _is_counted(node.module):
            for alias in node.names:
                found.add(f"{node.module}.{alias.name}")
                modules[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if _is_counted(alias.name):
                    found.add(alias.name)
                    top = alias.name.partition(".")[0]
                    modules[alias.asname or top] = alias.name if alias.asname else top
    return found | {name for name in _attributes(tree, modules) if name not in modules.values()}


def _is_counted(module: str) -> bool:
    return module.partition(".")[0] in COUNTED


def _attributes(tree: ast.AST, modules: dict[str, str]) -> Iterator[str]:
    """`xops.fmha.unbind` in full, where the first name is a module of a counted package."""
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or id(node) in inner:
            continue
        names: list[str] = []
        at: ast.expr = node
        while isinstance(at, ast.Attribute):
            names.append(at.attr)
            at = at.value
        if isinstance(at, ast.Name) and at.id in modules:
            yield ".".join([modules[at.id], *reversed(names)])


def _sources(wheels: Iterable[Path]) -> Iterator[tuple[str, str]]:
    """The distribution and the text of each file that says the name of a counted package."""
    seen: set[str] = set()
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if not name.endswith(".py") or name.partition("/")[0] in COUNTED:
                    continue
                content = archive.read(name)
                digest = hashlib.sha256(name.encode() + content).hexdigest()
                if digest not in seen and any(package.encode() in content for package in COUNTED):
                    seen.add(digest)
                    yield wheel.name.partition("-")[0], content.decode("utf-8", "replace")


def count(folder: Path) -> dict[str, Any]:
    """Files and distributions per name, over all wheels of a folder."""
    wheels = sorted(folder.glob("*.whl"))
    files: collections.Counter[str] = collections.Counter()
    users: dict[str, set[str]] = collections.defaultdict(set)
    for distribution, source in _sources(wheels):
        try:
            names = imported(source)
        except (SyntaxError, ValueError):  # a template, or another version of Python
            continue
        files.update(names)
        for name in names:
            users[name].add(distribution)
    return {
        "date": datetime.date.today().isoformat(),
        "distributions": ["-".join(wheel.name.split("-")[:2]) for wheel in wheels],
        "names": {name: [files[name], len(users[name])] for name in sorted(files)},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    result = count(parser.parse_args().folder)
    rows = ",\n".join(f"  {json.dumps(name)}: {value}" for name, value in result["names"].items())
    head = json.dumps({key: result[key] for key in ("date", "distributions")})[1:-1]
    DATA.write_text(f'{{{head},\n "names": {{\n{rows}\n }}}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
