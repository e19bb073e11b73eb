"""Which files of a tree are read, as git would see it, and what is in them: modules, notebooks, CUDA sources."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PYTHON, NOTEBOOK = (".py", ".pyi", ".pyw"), (".ipynb",)
CUDA_SOURCES = (".cu", ".cuh")
# Never anybody's source, whatever .gitignore says.
SKIPPED = frozenset(
    {".git", ".hg", ".svn", "__pycache__", "node_modules", ".venv", ".tox", ".mypy_cache", ".ruff_cache"}
)

_MAGIC = re.compile(r"^(\s*)[%!?].*$")


@dataclass(frozen=True)
class Source:
    """A piece of Python: a module, or one cell of a notebook (counted from 1)."""

    file: str
    text: str
    cell: int | None = None


class Ignore:
    """The patterns of one `.gitignore`, for paths below its folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        file = folder / ".gitignore"
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines() if file.is_file() else []
        self._rules = [_rule(line) for line in lines if line.strip() and not line.startswith("#")]

    def verdict(self, path: Path, is_folder: bool) -> bool | None:
        """True: ignored; False: taken back by a `!` rule; None: not mentioned. The last rule that matches wins."""
        relative = path.relative_to(self._folder).as_posix()
        found = None
        for pattern, negated, folders_only in self._rules:
            if (is_folder or not folders_only) and pattern.fullmatch(relative):
                found = not negated
        return found


def _rule(line: str) -> tuple[re.Pattern[str], bool, bool]:
    """A line of .gitignore as (pattern of relative paths, is it a `!` rule, folders only)."""
    line = line.strip()
    negated = line.startswith("!")
    line = line.removeprefix("!").removeprefix("\\")
    folders_only = line.endswith("/")
    line = line.rstrip("/")
    anchored = "/" in line
    words = {"**/": "(?:.*/)?", "/**": "/.*", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    parts = re.split(r"(\*\*/|/\*\*|\*\*|\*|\?|\[[^]]+\])", line.lstrip("/"))
    body = "".join(words.get(part) or (part if part.startswith("[") else re.escape(part)) for part in parts)
    return re.compile(body if anchored else f"(?:.*/)?{body}"), negated, folders_only


def walk(root: Path) -> Iterator[Path]:
    """The files below `root` that are worth reading, in a stable order. A file given by name is always read."""
    if root.is_file():
        yield root
        return
    yield from _below(root, [Ignore(folder) for folder in _up_to_repository(root)])


def _up_to_repository(root: Path) -> list[Path]:
    """Folders above `root` whose .gitignore covers it: those of the repository that it is in, outermost first."""
    above = list(root.resolve().parents)
    inside = [index for index, folder in enumerate(above) if (folder / ".git").exists()]
    if not inside or (root / ".git").exists():
        return []
    return above[: inside[0] + 1][::-1]


def _below(folder: Path, rules: list[Ignore]) -> Iterator[Path]:
    rules = [*rules, Ignore(folder.resolve())]
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        path = Path(entry.path)
        is_folder = entry.is_dir(follow_symlinks=False)
        verdicts = [verdict for rule in rules if (verdict := rule.verdict(path.resolve(), is_folder)) is not None]
        if entry.name in SKIPPED or (verdicts and verdicts[-1]) or entry.is_symlink():
            continue
        if is_folder:
            if not (path / "pyvenv.cfg").exists():
                yield from _below(path, rules)
        elif path.suffix in (*PYTHON, *NOTEBOOK, *CUDA_SOURCES):
            yield path


def sources(path: Path) -> Iterator[Source]:
    """The Python in a file. A notebook that is no notebook raises ValueError."""
    text = path.read_text(encoding="utf-8-sig")
    if path.suffix not in NOTEBOOK:
        yield Source(str(path), text)
        return
    notebook = json.loads(text)
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list):
        raise ValueError("not a notebook")
    for number, cell in enumerate(cells, 1):
        if cell.get("cell_type") == "code":
            yield Source(str(path), _without_magics("".join(cell.get("source", ()))), number)


def _without_magics(text: str) -> str:
    """Lines that are not Python become strings in place, so that line numbers stay and their words can be read."""
    if text.startswith("%%") and not text.startswith(("%%time", "%%capture", "%%torchdevice")):
        return repr(text)
    return "\n".join(_MAGIC.sub(lambda found: f"{found[1]}{found[0].strip()!r}", line) for line in text.split("\n"))
