"""`torchdevice scan`: reads source trees and prints the code that depends on CUDA, and whether it will run.

`scanning` reads the files. The tables that translation itself uses say how it treats a construct.
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
UNREAD = 2  # the exit status if nothing in the group was found, but a file could not be read


def parser() -> Parser:
    """Paths, and what to do with the result."""
    parser = Parser(
        "scan",
        "Read Python files and notebooks, without running them, and list the code that depends on CUDA:\n"
        "what translation handles, what works but may behave differently, what cannot work.",
        ["torchdevice scan .", "torchdevice scan src notebooks/demo.ipynb --fail-on unsupported"],
    )
    parser.add_argument("paths", nargs="+", metavar="PATH", help="files or folders; .gitignore is respected")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--fail-on", choices=tuple(FAIL_ON), help="exit status 1 if this is found, 2 if files could not be read"
    )
    parser.add_argument("-v", action="store_true", help="also list each handled line")
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
    """Read, print, and set the exit status."""
    parsing = parser()
    options = parsing.parse_args(words)
    missing = [path for path in options.paths if not os.path.exists(path)]
    if missing:
        parsing.error(f"{missing[0]} does not exist")
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
    """Read all files below the roots, each once. Callers that scan repeatedly pass the tables as `known`."""
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
    """The findings in one file.

    A file that cannot be read raises SyntaxError, ValueError (bad text), OSError, or MemoryError or RecursionError
    (nesting beyond the parser's stack).
    """
    if path.suffix in SOURCES:
        return [Finding(str(path), None, 1, f"*{path.suffix} file", UNSUPPORTED, "CUDA source: compiled by nvcc")]
    names: dict[str, str] = {}
    return [finding for source in sources(path) for finding in findings(source, known, names, tree)]


def as_data(result: Scan) -> dict[str, object]:
    """The result as JSON data, documented in docs/cli.md."""
    return {
        "schema": 1,
        "files": result.files,
        "counts": {group: result.count(group) for group in TITLES},
        "verdict": verdict(result),
        "findings": [dataclasses.asdict(finding) for finding in result.found],
        "unreadable": [{"file": file, "error": error} for file, error in result.unreadable],
    }


def as_text(result: Scan, every_line: bool) -> list[str]:
    """The findings by group, the worst last. Handled constructs are summed up unless `every_line`."""
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
    """One line that says only what reading the source can show."""
    files = counted(result.files, "file")
    bound = len({finding.file for finding in result.found})
    parts = [f"{result.count(group)} {group}" for group in TITLES if result.count(group)]
    if not parts:
        line = f"{files} read: no code names an accelerator"
    else:
        line = f"{files} read, {bound} with code for an accelerator: {', '.join(parts)}"
        if result.count(UNSUPPORTED):
            line += "; the program can fail where it reaches code that cannot work"
        elif result.count(UNKNOWN):
            line += f"; it may not run, because it needs {listed(_needed(result))}"
        elif result.count(CHANGED):
            line += "; should run; check what may behave differently"
        else:
            line += "; should run as it is"
    return line + (f"; {counted(len(result.unreadable), 'file')} could not be read" if result.unreadable else "")
