"""The wheel holds what users run: every module is reached from where users enter, and nothing else is there.

The source distribution holds the tests, too, and makes the same wheel.
"""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import torchdevice
from tests.checkout import PROJECT
from tests.conftest import ROOT
from torchdevice.bench.runner import BENCHMARKS, PROGRAMS
from torchdevice.cli import COMMANDS
from torchdevice.packages.table import MODULES as STAND_INS
from torchdevice.verify.parts import PARTS

SOURCES = ROOT / "src"
PACKAGE = SOURCES / "torchdevice"
MADE = ("*.pyc", "*.so")  # by Python and by compilers, in a checkout that was used
# What is in a checkout that was used and in no distribution.
LEFT_BEHIND = shutil.ignore_patterns(
    ".git", ".venv", ".matrix", "build", "dist", "*.egg-info", "__pycache__", ".*_cache", ".hypothesis", *MADE
)
DISTRIBUTED = ("src", "tests", "tools", "docs", "examples", "benchmarks", "locks", ".ci", ".github")


def module_of(path: Path) -> str:
    parts = path.relative_to(SOURCES).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in SOURCES.rglob("*.py")}
ENTRANCES = {
    "TorchDevice",
    "torchdevice.__main__",
    "torchdevice.pytest_plugin",  # -p torchdevice.pytest_plugin
    "torchdevice.notebook",  # %load_ext torchdevice
    *(entrance.partition(":")[0] for entrance in PROJECT["project"]["scripts"].values()),
    *(entrance.partition(":")[0] for entrance in PROJECT["project"]["entry-points"]["torch.backends"].values()),
    *(f"torchdevice.{home}" for home in ("errors", "session", *torchdevice._HOMES.values(), *torchdevice._MODULES)),
    *(f"torchdevice.cli.{command}" for command in COMMANDS),
    *(f"torchdevice.packages.{offer.home}" for row in STAND_INS.values() for offer in row.offers),
    *(f"torchdevice.verify.{part.module}" for part in PARTS),
    *(f"torchdevice.bench.{PROGRAMS.get(name, (name,))[0]}" for name in BENCHMARKS),
}


def named_by(module: str) -> Iterator[str]:
    """What a module names when it is used: in statements that import, and in texts. Imports for types do not count."""
    pending: list[ast.AST] = [ast.parse(MODULES[module].read_text(encoding="utf-8"))]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            pending.extend(node.orelse)
            continue
        pending.extend(ast.iter_child_nodes(node))
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}:{node.lineno}"
            yield from (node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def reached() -> set[str]:
    found: set[str] = set()
    pending = set(ENTRANCES)
    while pending:
        module = pending.pop()
        parts = module.split(".")
        packages = {".".join(parts[:length]) for length in range(1, len(parts))}
        found.add(module)
        pending |= ((set(named_by(module)) | packages) & MODULES.keys()) - found
    return found


def test_users_can_enter_where_the_list_says() -> None:
    assert ENTRANCES - MODULES.keys() == set()


def test_every_module_is_reached_by_users() -> None:
    assert MODULES.keys() - reached() == set()


@pytest.mark.parametrize("module", MODULES)
def test_nothing_of_tests_or_tools_is_imported(module: str) -> None:
    outside = {name for name in named_by(module) if name.split(".")[0] in ("tests", "tools") and " " not in name}
    assert outside - {"tests", "tools"} == set()  # words in texts


def test_the_data_files_are_those_that_the_project_lists() -> None:
    listed = {
        path for glob in PROJECT["tool"]["setuptools"]["package-data"]["torchdevice"] for path in PACKAGE.glob(glob)
    }
    there = {path for path in PACKAGE.rglob("*") if path.is_file() and path.suffix != ".py"}
    assert {path for path in there if not any(path.match(made) for made in MADE)} == {
        path for path in listed if path.is_file()
    }


def test_every_glob_matches_something() -> None:
    for glob in PROJECT["tool"]["setuptools"]["package-data"]["torchdevice"]:
        assert list(PACKAGE.glob(glob)), glob


def test_packages_are_found_in_src_alone() -> None:
    assert PROJECT["tool"]["setuptools"]["packages"]["find"] == {"where": ["src"]}
    assert PROJECT["tool"]["setuptools"]["py-modules"] == ["TorchDevice"]


def made(what: str, tree: Path) -> Path:
    """A distribution, made by the backend that pyproject.toml names."""
    code = f"import {PROJECT['build-system']['build-backend']} as backend; backend.build_{what}('dist')"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = (tree / "dist").glob("*.whl" if what == "wheel" else "*.tar.gz")
    return path


def content(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.mark.long
def test_the_source_distribution_is_whole_and_makes_the_same_wheel(tmp_path: Path) -> None:
    tree = tmp_path / "checkout"
    shutil.copytree(ROOT, tree, ignore=LEFT_BEHIND)
    there = {path.relative_to(tree).as_posix() for name in DISTRIBUTED for path in (tree / name).rglob("*")}
    files = {name for name in there if (tree / name).is_file()}
    direct = content(made("wheel", tree))
    shutil.rmtree(tree / "build")
    with tarfile.open(made("sdist", tree)) as archive:
        (top,) = {name.split("/")[0] for name in archive.getnames()}
        listed = {name.partition("/")[2] for name in archive.getnames()}
        archive.extractall(tmp_path, filter="data")
    assert files - listed == set()
    assert {"LICENSE", "README.md", "CHANGELOG.md", "Makefile", "src/torchdevice/virtual/native/native.cpp"} <= listed
    assert content(made("wheel", tmp_path / top)) == direct
    assert "torchdevice/virtual/native/native.cpp" in direct
    assert any(name.endswith("licenses/LICENSE") for name in direct)
