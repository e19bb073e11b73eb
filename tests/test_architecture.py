"""What is promised of the source tree: maps that are true, private names in one place, files of a size to read."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.conftest import ROOT

PACKAGE = ROOT / "src" / "torchdevice"
LONGEST = 600  # beyond this a file has to say why it is still one subject
FILES = sorted(PACKAGE.rglob("*.py"))
MAPPED = [folder for folder in ("catalog", "answers", "distributed", "packages") if (PACKAGE / folder).is_dir()]


def where(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


@pytest.mark.parametrize("folder", MAPPED)
def test_the_map_of_a_package_names_its_modules(folder: str) -> None:
    text = ast.get_docstring(ast.parse((PACKAGE / folder / "__init__.py").read_text(encoding="utf-8"))) or ""
    modules = {path.stem for path in (PACKAGE / folder).glob("*.py")} - {"__init__"}
    assert {name for name in modules if not re.search(rf"\b{name}\b", text)} == set()
    listed = {name for names in re.findall(r"(?m)^    (\w+(?:, \w+)*)(?: {2}|$)", text) for name in names.split(", ")}
    assert listed
    assert listed <= modules


def test_the_map_of_the_whole_names_every_module_and_package() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").partition("## Which file")[0]
    packages = {f"{path.parent.name}/" for path in PACKAGE.glob("*/__init__.py")}
    top = {path.name for path in PACKAGE.glob("*.py")} | packages
    assert {name for name in top if f"`{name}" not in page} == set()
    for named in re.findall(r"`([\w/]+\.py)`", page):
        assert (PACKAGE / named).exists() or (PACKAGE.parent / named).exists(), named


@pytest.mark.parametrize("path", FILES, ids=where)
def test_private_names_of_torch_are_in_one_package(path: Path) -> None:
    if where(path).startswith("_torch/"):
        return
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            owner = ast.unparse(node.value)  # operators of torch.ops are data, whatever they are called
            private = owner.startswith("torch") and not owner.startswith("torch.ops.")
            assert not private, f"{where(path)}:{node.lineno} {ast.unparse(node)}"
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch":
            names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
            assert not any(name.startswith("_") for name in names), f"{where(path)}:{node.lineno} {names}"


@pytest.mark.parametrize("path", FILES, ids=where)
def test_a_file_can_be_read_in_one_sitting_and_says_what_it_is(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= LONGEST
    assert ast.get_docstring(ast.parse(text))
