"""docs/reference.md is printed by its generator, and lacks no public name, option or environment variable."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tools.docs import reference, variables
from torchdevice.cli import COMMANDS
from torchdevice.config import SETTINGS, Config, asked_to_activate, resolve_config, switched_on
from torchdevice.reporting.destinations import REPORT
from torchdevice.reporting.destinations import parse as parse_destinations
from torchdevice.virtual.installer import LIMIT_VARIABLE, parse_size

PAGE = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
KNOWN = json.loads((Path(__file__).parent / "public_names.json").read_text(encoding="utf-8"))
OURS = re.compile(r"\bTORCHDEVICE(?:_[A-Z0-9_]*[A-Z0-9])?\b|\bTORCH_ALLOW_REDIRECTS\b")
SOURCES = sorted((ROOT / "src").rglob("*.py"))
# Words of annotations that are no class of ours.
TYPING = {"Any", "AbstractContextManager", "Mapping", "Collection", "Callable", "Listener", "Literal", "None"}
OPAQUE = {"Library"}  # the loaded C++ library: nothing for users


def public_objects() -> Iterator[tuple[str, Any]]:
    for module in reference.MODULES:
        for name in reference.public_names(module):
            yield f"{module}.{name}", reference.found(f"{module}.{name}")
    for path in reference.RESULTS:
        yield path, reference.found(path)


def described() -> Iterator[tuple[str, Any]]:
    """Public functions and classes, and the methods and properties of these."""
    for path, value in public_objects():
        yield path, value
        if inspect.isclass(value):
            yield from ((f"{path}.{name}", part) for name, part in reference.parts_of(value).items())


DESCRIBED = dict(described())


def annotations(value: Any) -> Iterator[str]:
    if isinstance(value, property):
        yield reference.spelled(inspect.signature(value.fget).return_annotation)  # type: ignore[arg-type]
    elif dataclasses.is_dataclass(value):
        yield from (reference.spelled(field.type) for field in dataclasses.fields(value))
    elif not inspect.isclass(value):
        yield reference.signature("", value)


def test_the_page_is_printed_by_its_generator() -> None:
    assert reference.page() == PAGE, "run: make docs"


def test_every_public_name_has_a_heading() -> None:
    headings = set(re.findall(r"(?m)^#### (\S+)$", PAGE))
    errors = set(reference.public_names("torchdevice.errors"))
    listed = {
        f"torchdevice.errors.{name}" if module == "torchdevice" and name in errors else f"{module}.{name}"
        for module in KNOWN.keys() - {"commands"}
        for name in {*KNOWN[module], *reference.public_names(module)}
    }
    assert listed - headings == set()


@pytest.mark.parametrize("path", DESCRIBED)
def test_a_docstring_is_a_sentence(path: str) -> None:
    text = vars(DESCRIBED[path]).get("__doc__") if inspect.isclass(DESCRIBED[path]) else DESCRIBED[path].__doc__
    assert text, path
    first = inspect.cleandoc(text).partition("\n\n")[0]
    assert len(first.split()) >= 4, first
    assert first.endswith("."), first


@pytest.mark.parametrize("path", DESCRIBED)
def test_parameters_and_fields_are_explained(path: str) -> None:
    value = DESCRIBED[path]
    if dataclasses.is_dataclass(value):
        names = {field.name for field in dataclasses.fields(value)}
    elif isinstance(value, property) or inspect.isclass(value):
        return
    else:
        names = inspect.signature(value).parameters.keys() - {"self"}
    assert {name for name in names if f"`{name}`" not in value.__doc__} == set()


def test_classes_in_annotations_are_explained() -> None:
    words = {
        word for value in DESCRIBED.values() for text in annotations(value) for word in re.findall(r"\b[A-Z]\w+", text)
    }
    known = {path.rpartition(".")[2] for path, value in public_objects() if inspect.isclass(value)}
    assert words - known - TYPING - OPAQUE - {"True", "False"} == set()


def section(heading: str) -> str:
    match = re.search(rf"(?ms)^### {re.escape(heading)}$(.*?)(?=^##)", PAGE)
    assert match, heading
    return match[1]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_its_options_and_their_meaning(command: str) -> None:
    rows = section(f"torchdevice {command}").replace("\\|", "¦").splitlines()
    cells = dict(row.strip("| ").split(" | ", 2)[:2] for row in rows if row.startswith("| `"))
    for action in reference.parser_of(command)._actions:
        named = [*action.option_strings, *map(str, action.choices or ())]
        for name in named or [str(action.metavar or action.dest.upper())]:
            meanings = [
                meaning for cell, meaning in cells.items() if re.search(rf"(?<![\w-]){re.escape(name)}\b", cell)
            ]
            assert any(meanings), f"{command} {name}"


def constants() -> dict[str, str]:
    """Module constants that are strings, by name: what `environ.get(NAME)` means."""
    found = {}
    for path in SOURCES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                names, values = node.targets[0], node.value
                pairs = zip(names.elts, values.elts, strict=True) if _paired(names, values) else [(names, values)]
                for name, value in pairs:
                    if isinstance(name, ast.Name) and isinstance(value, ast.Constant) and isinstance(value.value, str):
                        found[name.id] = value.value
    return found


def _paired(names: ast.expr, values: ast.expr) -> bool:
    return isinstance(names, ast.Tuple) and isinstance(values, ast.Tuple) and len(names.elts) == len(values.elts)


def variables_read() -> set[str]:
    """Names of variables that code looks up in the environment, as far as they can be read off the code."""
    known, found = constants(), set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                owner, key = ast.unparse(node.func.value), node.args[0]
            elif isinstance(node, ast.Subscript):
                owner, key = ast.unparse(node.value), node.slice
            else:
                continue
            if owner not in ("os.environ", "environ", "environment()"):
                continue
            if isinstance(key, ast.Constant):
                found.add(str(key.value))
            elif isinstance(key, ast.Name) and key.id in known:
                found.add(known[key.id])
    for source in (ROOT / "src").rglob("*.cpp"):
        found |= set(re.findall(r'getenv\("(\w+)"\)', source.read_text(encoding="utf-8")))
    return found


def listed() -> set[str]:
    return {row.name for row in (*variables.VARIABLES, *variables.INHERITED)} | variables.OTHERS.keys()


def test_no_variable_of_ours_is_missing_or_stale() -> None:
    named = set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                named |= set(OURS.findall(node.value))
    ours = {name for name in listed() if OURS.fullmatch(name)}
    assert named - ours == set()
    assert ours - named == set()
    assert {setting.variable for setting in SETTINGS} <= ours


def test_no_variable_that_is_read_is_missing() -> None:
    read = variables_read()
    assert {"CXX", "NO_COLOR", "CUDA_VISIBLE_DEVICES", "TORCHDEVICE_REPORT", "PYTORCH_NO_CUDA_MEMORY_CACHING"} <= read
    assert read - listed() == set()
    assert {name for name in listed() if f"| `{name}` |" not in PAGE} == set()


@pytest.mark.parametrize("row", variables.VARIABLES, ids=lambda row: row.name)
def test_an_example_is_valid_and_changes_something(row: variables.Variable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(row.name, row.example)
    if row.name in ("TORCHDEVICE", "TORCH_ALLOW_REDIRECTS"):
        assert asked_to_activate()
    elif row.name == LIMIT_VARIABLE:
        assert parse_size(row.example) > 0
    elif row.name == REPORT:
        assert parse_destinations(row.example)
    elif row.name == "TORCHDEVICE_PROFILE":
        assert switched_on(row.name)
    elif row.name == "TORCHDEVICE_CACHE":
        assert Path(row.example).is_absolute()
    elif row.name == "TORCHDEVICE_VIRTUAL":
        assert re.fullmatch(r"(cuda|mps|xpu)(:\d+)?(:real)?(@\w+)?", row.example)
    else:
        assert resolve_config(environ={row.name: row.example}) != Config()
