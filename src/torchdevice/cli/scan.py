"""`torchdevice scan`: reads source trees, prints what binds them to CUDA, and says honestly what that means.

The reading is `scanning`; what translation can do with a construct comes from the runtime's own tables.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torchdevice.answers.packages import SOURCES, listed
from torchdevice.cli.parsing import Parser
from torchdevice.cli.scanning.files import Tree, sources, walk
from torchdevice.cli.scanning.limits import read_each
from torchdevice.cli.scanning.tables import CHANGED, HANDLED, SIMULATED, TITLES, UNKNOWN, UNSUPPORTED, Tables
from torchdevice.cli.scanning.visitor import Finding, findings
from torchdevice.printable import printable
from torchdevice.reporting.collect import columns, counted

# What `--fail-on` may name, and the groups that it counts.
FAIL_ON = {"unsupported": ("unsupported",), "changed": ("unsupported", "changed")}
UNREAD = 2  # the exit status where nothing of the kind was found, and a file was not read


def parser() -> Parser:
    """Paths, and what to do with the result."""
    parser = Parser(
        "scan",
        "Read Python files and notebooks, without running them, and list what binds them to CUDA:\n"
        "what translation handles, what works but may mean something else, what cannot work.",
        ["torchdevice scan .", "torchdevice scan src notebooks/demo.ipynb --fail-on unsupported"],
    )
    parser.add_argument("paths", nargs="+", metavar="PATH", help="files or folders; .gitignore is respected")
    parser.add_argument("--json", action="store_true", help="the same for programs")
    parser.add_argument(
        "--fail-on", choices=tuple(FAIL_ON), help="exit status 1 if such is found, 2 if files were not read"
    )
    parser.add_argument("-v", action="store_true", help="list each line that is handled, too")
    return parser


@dataclass
class Scan:
    """What was read and found."""

    files: int = 0
    found: list[Finding] = field(default_factory=list)
    unreadable: list[tuple[str, str]] = field(default_factory=list)

    def count(self, group: str) -> int:
        """How many constructs are in a group."""
        return sum(finding.group == group for finding in self.found)


def main(words: Sequence[str]) -> int:
    """Read, print, and tell by the exit status."""
    parsing = parser()
    options = parsing.parse_args(words)
    missing = [path for path in options.paths if not os.path.exists(path)]
    if missing:
        parsing.error(f"there is no {missing[0]}")
    result = scan(map(Path, options.paths))
    if options.json:
        print(json.dumps(as_data(result), indent=2))
    else:
        print("\n".join(map(printable, as_text(result, options.v))))
    failing = FAIL_ON.get(options.fail_on, ())
    if any(finding.group in failing for finding in result.found):
        return 1
    return UNREAD if options.fail_on and result.unreadable else 0


def scan(roots: Iterable[Path], known: Tables | None = None) -> Scan:
    """Read all files below the roots, each once. `known`: for who scans again and again."""
    known = known or Tables()
    result = Scan()
    roots = list(roots)
    paths = list(dict.fromkeys(path for root in roots for path in walk(root)))
    tree = Tree(roots, paths)
    read = functools.partial(read_file, known=known, tree=tree)
    for path, answer in zip(paths, read_each(paths, read), strict=True):
        result.files += 1
        if isinstance(answer, str):
            result.unreadable.append((str(path), answer))
        else:
            result.found += answer
    return result


def read_file(path: Path, known: Tables, tree: Tree) -> list[Finding]:
    """What is in one file. What cannot be read is a SyntaxError, ValueError, RecursionError, MemoryError or OSError.

    Bad text is a ValueError, nesting beyond the parser's stack a MemoryError or a RecursionError.
    """
    if path.suffix in SOURCES:
        return [Finding(str(path), None, 1, f"*{path.suffix} file", UNSUPPORTED, "CUDA source: compiled by nvcc")]
    names: dict[str, str] = {}
    return [finding for source in sources(path) for finding in findings(source, known, names, tree)]


def as_data(result: Scan) -> dict[str, object]:
    """For programs; docs/cli.md documents it."""
    return {
        "schema": 1,
        "files": result.files,
        "counts": {group: result.count(group) for group in TITLES},
        "verdict": verdict(result),
        "findings": [dataclasses.asdict(finding) for finding in result.found],
        "unreadable": [{"file": file, "error": error} for file, error in result.unreadable],
    }


def as_text(result: Scan, every_line: bool) -> list[str]:
    """Grouped, worst last, so that it is what one sees; what is handled is summed up unless each line is wanted."""
    lines: list[str] = []
    for group, title in TITLES.items():
        members = [finding for finding in result.found if finding.group == group]
        if not members:
            continue
        lines += [f"{title} ({len(members)})"]
        if group in (HANDLED, SIMULATED) and not every_line:
            lines += [f"  {line}" for line in columns(_summed(members))]
        else:
            table: list[tuple[str, ...]] = [(finding.place, finding.construct, finding.note) for finding in members]
            lines += [f"  {line}" for line in columns(table)]
        lines.append("")
    if result.unreadable:
        lines += [f"Not read ({len(result.unreadable)})", *(f"  {f}: {why}" for f, why in result.unreadable), ""]
    return [*lines, verdict(result)]


def _summed(members: Sequence[Finding]) -> list[tuple[str, ...]]:
    groups: dict[str, list[Finding]] = {}
    for finding in members:
        groups.setdefault(finding.construct, []).append(finding)
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    return [(f"{len(same)} ×", construct, f"first at {same[0].place}") for construct, same in ordered]


def _needed(result: Scan) -> list[str]:
    constructs = [finding.construct for finding in result.found if finding.group == UNKNOWN]
    return sorted({construct.removeprefix("import ") for construct in constructs})


def verdict(result: Scan) -> str:
    """One line that promises no more than reading can know."""
    files = counted(result.files, "file")
    bound = len({finding.file for finding in result.found})
    parts = [f"{result.count(group)} {group}" for group in TITLES if result.count(group)]
    if not parts:
        line = f"{files} read: nothing names an accelerator"
    else:
        line = f"{files} read, {bound} bound to an accelerator: {', '.join(parts)}"
        if result.count(UNSUPPORTED):
            line += "; the program stops where it reaches what cannot work"
        elif result.count(UNKNOWN):
            line += f"; cannot tell whether it runs, it needs {listed(_needed(result))}"
        elif result.count(CHANGED):
            line += "; should run, look at what may mean something else"
        else:
            line += "; should run as it is"
    return line + (f"; {counted(len(result.unreadable), 'file')} could not be read" if result.unreadable else "")
