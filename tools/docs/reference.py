"""docs/reference.md, printed from docstrings, parsers and tables: `python -m tools.docs.reference > docs/reference.md`.

Nothing here is read off the machine or the installed torch, so every version of torch prints the same page.
"""
# ruff: noqa: E501 - paragraphs of Markdown

from __future__ import annotations

import argparse
import dataclasses
import importlib
import inspect
import re
from collections.abc import Iterator
from enum import Enum
from typing import Any

from tools.docs import variables
from tools.docs.links import slug
from torchdevice import pytest_plugin
from torchdevice.cli import COMMANDS
from torchdevice.cli.parsing import Parser

HEAD = """# Reference

Printed by `python -m tools.docs.reference`; do not edit. It holds every public name, every command and option, and
every environment variable. [cli.md](cli.md) has the commands with their output, [policy.md](policy.md) the policies.

- [Python](#python): {modules}
- [Command line](#command-line): {commands}
- [pytest](#pytest), [Notebooks](#notebooks)
- [Environment variables](#environment-variables)
"""

MODULES = (
    *("torchdevice", "torchdevice.memory", "torchdevice.placement", "torchdevice.virtual", "torchdevice.fallback"),
    "torchdevice.errors",
)
# What public names take and give, and have no public name themselves.
RESULTS = (
    "torchdevice.policy.hosts.Host",
    "torchdevice.policy.resolve.Condition",
    "torchdevice.translate.points.Skip",
    "torchdevice.reporting.collect.Row",
    "torchdevice.reporting.collect.Place",
    "torchdevice.reporting.collect.FallbackRow",
    "torchdevice.reporting.collect.OperatorRow",
    "torchdevice.reporting.collect.Profile",
    "torchdevice.reporting.collect.Memory",
    "torchdevice.reporting.collect.Moment",
    "torchdevice.reporting.collect.Event",
    "torchdevice.reporting.collect.Timed",
    "torchdevice.ledger.Site",
    "torchdevice.ledger.Fallback",
    "torchdevice.ledger.FallbackTotals",
    "torchdevice.fallback.table.Matrix",
    "torchdevice.virtual.installer.Installation",
)
# How the sources abbreviate → what a reader knows.
SPELLED = {"RealDevice": "torch.device", "Support": "Literal['all', 'real']"}
LONGEST = 100  # a signature in one line


PYTEST = """## pytest

`pytest -p torchdevice.pytest_plugin` activates translation before any conftest is imported, in the workers of pytest-xdist, too. An
option that is not given leaves its variable as it is.
"""
NOTEBOOKS = """## Notebooks

| magic | meaning |
| --- | --- |
| `%load_ext torchdevice` | activates translation |
| `%unload_ext torchdevice` | deactivates it |
| `%%torchdevice.report` | runs the cell and shows what was redirected in it |
"""


def public_names(module: str) -> list[str]:
    """What users may use of a module: what it lists, or every class of its own."""
    home = importlib.import_module(module)
    classes = [name for name, value in vars(home).items() if inspect.isclass(value) and value.__module__ == module]
    return list(getattr(home, "__all__", classes))


def found(path: str) -> Any:
    """The object at a dotted path."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def page() -> str:
    """The whole page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield HEAD.format(
        modules=", ".join(_link(module) for module in MODULES) + ", " + _link("Classes of results"),
        commands=", ".join(_link(f"torchdevice {command}", f"`{command}`") for command in COMMANDS),
    )
    yield "## Python\n"
    yield "`import TorchDevice` activates translation and has the names of `torchdevice`. `torchdevice.__version__` is the version.\n"
    for module in MODULES:
        yield from _module(module)
    yield "### Classes of results\n"
    yield "These classes are not public names: do not import them, but use the objects that public functions return.\n"
    for path in RESULTS:
        yield from _class(path.rpartition(".")[2], found(path))
    yield "## Command line\n"
    yield "`python -m torchdevice` is the same as `torchdevice`. `torchdevice SCRIPT …` is `torchdevice run SCRIPT …`.\n"
    for command in COMMANDS:
        yield from _command(command)
    yield PYTEST
    yield "| option | variable | meaning |"
    yield "| --- | --- | --- |"
    for option, variable, settings in pytest_plugin.OPTIONS:
        value = settings.get("metavar") or "\\|".join(settings["choices"])
        yield f"| `{option} {value}` | [`{variable}`](#environment-variables) | {settings['help']} |"
    yield ""
    yield NOTEBOOKS
    yield from variables.section()


def _link(heading: str, text: str = "") -> str:
    return f"[{text or heading}](#{slug(heading)})"


def _module(module: str) -> Iterator[str]:
    yield f"### {module}\n"
    home = importlib.import_module(module)
    yield f"{inspect.getdoc(home)}\n"
    if module == "torchdevice.errors":
        yield "All of these are names of [torchdevice](#torchdevice), too.\n"
    for name in public_names(module):
        if module == "torchdevice" and issubclass_of_error(getattr(home, name)):
            continue
        value = getattr(home, name)
        yield from _class(f"{module}.{name}", value) if inspect.isclass(value) else _function(f"{module}.{name}", value)
    if module == "torchdevice":
        errors = [name for name in public_names(module) if issubclass_of_error(getattr(home, name))]
        yield "Errors: " + ", ".join(_link(f"torchdevice.errors.{name}", f"`{name}`") for name in errors) + ".\n"


def issubclass_of_error(value: object) -> bool:
    """Whether a public name is an exception or a warning."""
    return inspect.isclass(value) and issubclass(value, Exception)


def _function(path: str, function: Any, level: int = 4) -> Iterator[str]:
    yield f"{'#' * level} {path}\n"
    yield f"```python\n{signature(path.rpartition('.')[2] if level > 4 else path, function)}\n```\n"
    yield f"{inspect.getdoc(function)}\n"


def signature(path: str, function: Any) -> str:
    """The call, with types as the sources write them; one parameter per line where it is long."""
    parts = []
    whole = inspect.signature(function)
    for parameter in whole.parameters.values():
        if parameter.name == "self":
            continue
        default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
        parts.append(f"{parameter.name}: {spelled(parameter.annotation)}{default}")
    result = spelled(whole.return_annotation)
    line = f"{path}({', '.join(parts)}) -> {result}"
    if len(line) <= LONGEST:
        return line
    return f"{path}(\n" + "".join(f"    {part},\n" for part in parts) + f") -> {result}"


def spelled(annotation: object) -> str:
    """A type as a reader knows it."""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"\b\w+\b", lambda word: SPELLED.get(word[0], word[0]), text)


def parts_of(kind: type) -> dict[str, Any]:
    """Public properties and methods of a class, in the order of its source."""
    return {
        name: value
        for name, value in vars(kind).items()
        if not name.startswith("_") and (isinstance(value, property) or inspect.isfunction(value))
    }


def _class(heading: str, kind: type) -> Iterator[str]:
    yield f"#### {heading}\n"
    if issubclass_of_error(kind):
        yield f"Bases: {', '.join(f'`{base.__name__}`' for base in kind.__bases__)}.\n"
    yield f"{inspect.getdoc(kind)}\n"
    if issubclass(kind, Enum):
        yield "".join(f"- `{member.name}`: {member.value}\n" for member in kind)
    if dataclasses.is_dataclass(kind):
        yield "| field | type |"
        yield "| --- | --- |"
        for each in dataclasses.fields(kind):
            yield f"| `{each.name}` | {_code(spelled(each.type))} |"
        yield ""
    for name, value in parts_of(kind).items():
        if isinstance(value, property):
            result = spelled(inspect.signature(value.fget).return_annotation)  # type: ignore[arg-type]
            yield f"- `{name}`: `{result}`. {inspect.getdoc(value)}"
        else:
            yield f"- `{signature(name, value)}`: {inspect.getdoc(value)}"
    if parts_of(kind):
        yield ""


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")


def parser_of(command: str) -> Parser:
    """The parser that the command itself uses."""
    made: Parser = importlib.import_module(f"torchdevice.cli.{command}").parser()
    return made


def _command(command: str) -> Iterator[str]:
    parser = parser_of(command)
    yield f"### torchdevice {command}\n"
    yield f"```console\n{_usage(parser)}\n```\n"
    yield _paragraph(parser.description or "")
    rows = [(_code(named(action)), *_explained(action)) for action in parser._actions if action.dest != "help"]
    rows.append(("`-h`, `--help`", "show the help of the command and exit", ""))
    columns = 3 if any(default for _, _, default in rows) else 2
    for row in (("argument or option", "meaning", "default"), ("---",) * 3, *rows):
        yield f"| {' | '.join(row[:columns])} |"
    yield ""
    yield "```console"
    for line in (parser.epilog or "").splitlines()[1:]:
        yield f"$ {line.strip()}"
    yield "```\n"


def _explained(action: argparse.Action) -> tuple[str, str]:
    """The meaning, and the default that the help names."""
    meaning, _, default = re.sub(r"[ ;(]+default: ([^)]*)\)?$", r"\t\1", action.help or "").partition("\t")
    return meaning.replace("|", "\\|"), default


def _usage(parser: Parser) -> str:
    """What argparse breaks into lines differs between versions of Python, so it is joined."""
    return " ".join(parser.format_usage().removeprefix("usage: ").split())


def _paragraph(text: str) -> str:
    """A description, in which lines that are indented are a list."""
    lines = [
        line if not line.startswith("  ") else "- " + re.sub(r"^(.+?)\s{2,}|^(\S+)\s", r"`\1\2`: ", line.strip())
        for line in text.splitlines()
    ]
    first_item = next((number for number, line in enumerate(lines) if line.startswith("- ")), None)
    if first_item is not None:
        lines.insert(first_item, "")
    return "\n".join(lines) + "\n"


def named(action: argparse.Action) -> str:
    """An option with its value, or the name of an argument, as one writes it."""
    choices = "|".join(map(str, action.choices)) if action.choices else ""
    value = choices or (action.metavar if isinstance(action.metavar, str) else action.dest.upper())
    if not action.option_strings:
        return f"{value}…" if action.nargs in ("*", "+") else value
    takes = f" {value}" if action.nargs != 0 else ""
    return ", ".join(f"{option}{takes}" for option in action.option_strings)


if __name__ == "__main__":
    print(page(), end="")
