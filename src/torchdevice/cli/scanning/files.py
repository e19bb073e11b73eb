"""Selects the files of a tree, following .gitignore, and reads them: modules, notebooks, CUDA sources."""

from __future__ import annotations

import codecs
import fnmatch
import importlib.util
import io
import json
import os
import re
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from torchdevice.answers.packages import SOURCES, listed, submodules
from torchdevice.reading import read_regular

PYTHON, NOTEBOOK = (".py", ".pyi", ".pyw"), (".ipynb",)
# These folders never hold a project's own source, whatever .gitignore says.
SKIPPED = frozenset(
    {".git", ".hg", ".svn", "__pycache__", "node_modules", ".venv", ".tox", ".mypy_cache", ".ruff_cache"}
)

# Larger files are generated or malicious. Notebooks also hold images.
LARGEST_SOURCE = 1 << 20
LARGEST_NOTEBOOK = 64 << 20
LARGEST_IGNORE, MOST_RULES = 64 << 10, 2000
# Other encodings can take unbounded time, or do not produce text (`zip`).
ENCODINGS = frozenset({"utf-8", "utf-8-sig", "iso8859-1", "ascii"})

_MAGIC = re.compile(r"^(\s*)[%!?].*$")


@dataclass(frozen=True)
class Source:
    """Python source: a module, or one cell of a notebook (counted from 1)."""

    file: str
    text: str
    cell: int | None = None


class Tree:
    """What the scanned files contain: modules by name, CUDA sources, git submodules."""

    def __init__(self, roots: Sequence[Path], files: Sequence[Path]) -> None:
        self._roots = [root if root.is_dir() else root.parent for root in roots]
        self._names = {name for path in files for name in (path.stem, *path.parent.parts)}
        cuda = [str(path) for path in files if path.suffix in SOURCES]
        fetched = [name for root in self._roots for name in submodules(root)]
        parts = {"CUDA sources": cuda, "git submodules": fetched}
        self.comes_with = " and ".join(f"{what} ({listed(names)})" for what, names in parts.items() if names)

    def has_beside(self, file: str, name: str) -> bool:
        """Whether an import of `name` in a file finds a module of the tree before an installed one."""
        folders = [Path(file).parent, *self._roots]
        return any((folder / name / "__init__.py").exists() or (folder / f"{name}.py").exists() for folder in folders)

    def lacks(self, name: str) -> bool:
        """Whether neither the tree nor the environment has a module."""
        if name in self._names:
            return False
        try:
            return importlib.util.find_spec(name) is None
        except (ImportError, ValueError):  # a module without a spec
            return False


class Ignore:
    """The patterns of one `.gitignore`, for paths below its folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            text = read_regular(folder / ".gitignore", LARGEST_IGNORE).decode("utf-8", "replace")
        except (OSError, ValueError):  # no .gitignore, or not a text file: then more files are read
            text = ""
        lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
        rules = map(_rule, lines if len(lines) <= MOST_RULES else ())
        self._rules = [rule for rule in rules if rule is not None]

    def __bool__(self) -> bool:
        return bool(self._rules)

    def verdict(self, path: Path, is_folder: bool) -> bool | None:
        """True: ignored. False: included again by a `!` rule. None: no rule matches. The last matching rule wins."""
        names = path.relative_to(self._folder).parts
        found = None
        for rule in self._rules:
            if (is_folder or not rule.folders_only) and rule.matches(names):
                found = not rule.negated
        return found


class Rule(NamedTuple):
    """A line of .gitignore: a pattern for each name of a path, or None for `**`, which is any number of names."""

    parts: tuple[re.Pattern[str] | None, ...]
    negated: bool
    folders_only: bool

    def matches(self, names: Sequence[str]) -> bool:
        """Match in time proportional to the product of both lengths, because the pattern may be malicious."""
        reached = {0}
        for number, part in enumerate(self.parts):
            if part is not None:
                reached = {at + 1 for at in reached if at < len(names) and part.match(names[at])}
            elif reached:
                is_last = number == len(self.parts) - 1  # `a/**` matches what is inside a, not a itself
                reached = set(range(min(reached) + is_last, len(names) + 1))
        return len(names) in reached


def _rule(line: str) -> Rule | None:
    """The rule of a line; None for a blank line, a comment or an invalid pattern."""
    line = line.strip()
    negated = line.startswith("!")
    line = line.removeprefix("!").removeprefix("\\")
    folders_only = line.endswith("/")
    line = line.rstrip("/")
    words = [word for word in line.split("/") if word]
    if not words:
        return None
    if "/" not in line:
        words = ["**", *words]
    try:
        # Python's own translation of a name's pattern does not backtrack.
        parts = tuple(None if word == "**" else re.compile(fnmatch.translate(word)) for word in words)
    except re.error:  # a reversed range such as `[z-a]`, which matches nothing in git either
        return None
    return Rule(parts, negated, folders_only)


def walk(root: Path) -> Iterator[Path]:
    """The files below `root` that are scanned, in a stable order. A file given by name is always read."""
    if root.is_file():
        yield root
        return
    yield from _below(root, [Ignore(folder) for folder in _up_to_repository(root)])


def _up_to_repository(root: Path) -> list[Path]:
    """Folders above `root` whose .gitignore applies to it: those of its repository, outermost first."""
    above = list(root.resolve().parents)
    inside = [index for index, folder in enumerate(above) if (folder / ".git").exists()]
    if not inside or (root / ".git").exists():
        return []
    return above[: inside[0] + 1][::-1]


def _below(root: Path, above: list[Ignore]) -> Iterator[Path]:
    """Walk without recursion, since a tree may be deeper than Python's stack. Links are not followed: they may loop."""
    real = root.resolve()
    waiting: list[tuple[Path, list[Ignore]]] = [(root, above)]
    while waiting:
        path, rules = waiting.pop()
        if not path.is_dir():
            yield path
            continue
        place = real / path.relative_to(root)
        rules = [*rules, *filter(None, [Ignore(place)])]
        try:
            entries = sorted(os.scandir(path), key=lambda entry: entry.name, reverse=True)
        except OSError:  # no permission, or the path is too long: reported when it is read
            yield path
            continue
        waiting += [(Path(entry.path), rules) for entry in entries if _is_wanted(entry, place, rules)]


def _is_wanted(entry: os.DirEntry[str], place: Path, rules: list[Ignore]) -> bool:
    if entry.is_symlink() or entry.name in SKIPPED:
        return False
    path, is_folder = Path(entry.path), entry.is_dir(follow_symlinks=False)
    verdicts = [verdict for rule in rules if (verdict := rule.verdict(place / entry.name, is_folder)) is not None]
    if verdicts and verdicts[-1]:
        return False
    if is_folder:
        return not (path / "pyvenv.cfg").exists()
    # Reading a pipe or a device could block forever.
    return entry.is_file(follow_symlinks=False) and path.suffix in (*PYTHON, *NOTEBOOK, *SOURCES)


def sources(path: Path) -> Iterator[Source]:
    """The Python source in a file. Raises ValueError or SyntaxError if it cannot be read as Python."""
    if path.suffix not in NOTEBOOK:
        yield Source(str(path), _decoded(read_regular(path, LARGEST_SOURCE)))
        return
    notebook = json.loads(read_regular(path, LARGEST_NOTEBOOK).decode("utf-8-sig"))
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list):
        raise ValueError("not a notebook")
    for number, cell in enumerate(cells, 1):
        if not isinstance(cell, dict):
            raise ValueError("not a notebook")
        if cell.get("cell_type") == "code":
            text = cell.get("source", "")
            whole = "".join(map(str, text)) if isinstance(text, list) else str(text)
            if len(whole) > LARGEST_SOURCE:
                raise ValueError(f"cell {number} is larger than {LARGEST_SOURCE >> 20} MiB")
            yield Source(str(path), _without_magics(whole), number)


def _decoded(data: bytes) -> str:
    """The text of a module, decoded by the encoding that it declares."""
    encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    if codecs.lookup(encoding).name not in ENCODINGS:
        raise ValueError(f"its encoding is {encoding}: only UTF-8 and Latin-1 are read")
    return io.TextIOWrapper(io.BytesIO(data), encoding).read()


def _without_magics(text: str) -> str:
    """Replace lines that are not Python by string literals, which keeps line numbers and their text."""
    if text.startswith("%%") and not text.startswith(("%%time", "%%capture", "%%torchdevice")):
        return repr(text)
    return "\n".join(_MAGIC.sub(lambda found: f"{found[1]}{found[0].strip()!r}", line) for line in text.split("\n"))
