"""`torchdevice catalog`: every public function of the installed torch, how TorchDevice treats it, what was measured.

The rows are `catalog`; what the mechanisms know comes through `cataloguing`.
"""

from __future__ import annotations

import difflib
import json
import sys
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torchdevice.cli.parsing import Parser
from torchdevice.reporting.collect import columns

if TYPE_CHECKING:
    from torchdevice.catalog.entries import Entry

ACTIONS = ("show", "note", "diff")


def parser() -> Parser:
    """An action with its words, or filters for the list."""
    parser = Parser(
        "catalog",
        "Every public function of the installed torch: what TorchDevice does with it, and what was measured.\n"
        "`show NAME` tells all of one, `note NAME TEXT` keeps a remark, `diff OLD.json` tells what changed.",
        ["torchdevice catalog --namespace torch.cuda --status gap", "torchdevice catalog show torch.zeros"],
    )
    parser.add_argument("action", nargs="?", choices=ACTIONS, help="instead of the list")
    parser.add_argument("words", nargs="*", metavar="WORD", help="a name, a name and a text, or a file")
    parser.add_argument("--namespace", metavar="NAME", help="names below this one")
    parser.add_argument("--status", metavar="STATUS", help="complete, gap, in_progress, not_applicable, not_started")
    parser.add_argument("--search", metavar="TEXT", help="names that contain this")
    parser.add_argument("--json", action="store_true", help="the same for programs")
    parser.add_argument("--md", action="store_true", help="the same as Markdown")
    return parser


def main(words: Sequence[str]) -> int:
    """Do what is asked; 1 if a name is unknown."""
    parsing = parser()
    options = parsing.parse_args(words)
    wanted = {"show": 1, "note": 2, "diff": 1, None: 0}[options.action]
    if len(options.words) != wanted:
        parsing.error(f"{options.action or 'the list'} takes {wanted} more word(s)")
    from torchdevice.catalog.status import STATUSES

    if options.status and options.status not in STATUSES:
        parsing.error(f"no status {options.status!r}: one of {', '.join(STATUSES)}")
    if options.action == "diff":
        return _diff(parsing, options)
    from torchdevice.cli.cataloguing import catalogue

    entries, surface = catalogue()
    if options.action:
        entry = _find(entries, options.words[0])
        if entry is None:
            return _unknown(options.words[0], entries)
        return _show(entry, options.json) if options.action == "show" else _note(entry, options.words[1])
    chosen = [entry for entry in entries if _matches(entry, options)]
    if options.json:
        data = {"schema": 1, "torch": _version(), "unread": surface.unread, "entries": [e.to_json() for e in chosen]}
        print(json.dumps(data, indent=1, ensure_ascii=False))
    elif options.md:
        from torchdevice.catalog.pages import namespace_page

        print(namespace_page(options.namespace or "torch", chosen), end="")
    else:
        print("\n".join(as_text(chosen)))
    return 0


def _version() -> str:
    from torchdevice.cli.cataloguing import torch_version

    return torch_version()


def _matches(entry: Entry, options: Any) -> bool:
    names = (entry.name, *entry.aliases)
    space = options.namespace
    return (
        (not space or any(name == space or name.startswith(f"{space}.") for name in names))
        and (not options.status or entry.status == options.status)
        and (not options.search or any(options.search.lower() in name.lower() for name in names))
    )


def as_text(entries: Sequence[Entry]) -> list[str]:
    """A line each, then the sums."""
    rows: list[tuple[str, ...]] = [(e.name, e.kind, e.treatment, e.verified_by, e.status) for e in entries]
    counts = Counter(entry.status for entry in entries)
    sums = ", ".join(f"{count} {status}" for status, count in counts.most_common())
    return [*columns(rows), *([""] if rows else []), f"{len(entries)} entries" + (f": {sums}" if sums else "")]


def _find(entries: Sequence[Entry], name: str) -> Entry | None:
    return next((entry for entry in entries if name == entry.name or name in entry.aliases), None)


def _unknown(name: str, entries: Sequence[Entry]) -> int:
    close = difflib.get_close_matches(name, [entry.name for entry in entries], n=3)
    hint = f", did you mean {', '.join(close)}?" if close else ""
    sys.stderr.write(f"torchdevice catalog: torch {_version()} has no public {name}{hint}\n")
    return 1


def _show(entry: Entry, as_json: bool) -> int:
    if as_json:
        print(json.dumps(entry.to_json(), indent=1, ensure_ascii=False))
        return 0
    outcomes = ", ".join(f"{host} {outcome}" for host, outcome in entry.outcomes.items())
    signature = {True: "torch's own", False: "differs from torch's", None: "not replaced"}[entry.same_signature]
    rows = [
        ("what", f"{entry.kind}: {entry.summary}" if entry.summary else entry.kind),
        ("signature", entry.signature),
        ("also", ", ".join(entry.aliases)),
        ("device", entry.role + (f" ({', '.join(entry.device_parameters)})" if entry.device_parameters else "")),
        ("treatment", entry.treatment + (f": {entry.how}" if entry.how else "")),
        ("replacement", signature),
        ("native", ", ".join(entry.native)),
        ("MLX", f"{entry.mlx} ({entry.mlx_confidence})" if entry.mlx else ""),
        ("verified by", f"{entry.verified_by}: {entry.call}" if entry.call else entry.verified_by),
        ("plain torch", "can call it here" if entry.plain else "cannot call it here"),
        ("outcomes", outcomes),
        *((f"why {host}", text) for host, text in entry.why.items()),
        ("status", entry.status),
        ("note", entry.note),
    ]
    print(entry.name)
    print("\n".join(f"  {line}" for line in columns([row for row in rows if row[1]])))
    return 0


def _note(entry: Entry, text: str) -> int:
    from torchdevice.catalog.store import add_note

    print(f"{entry.name}: noted in {add_note(entry.name, text)}")
    return 0


def _diff(parsing: Parser, options: Any) -> int:
    from torchdevice.catalog.changes import changes, read_rows

    try:
        with open(options.words[0], encoding="utf-8") as file:
            old = read_rows(file.read())
    except (OSError, ValueError) as error:
        parsing.error(
            f"{options.words[0]} is no catalogue ({error}): make one by `torchdevice catalog --json > old.json`"
        )
    from torchdevice.cli.cataloguing import catalogue

    found = changes(old, [entry.to_json() for entry in catalogue()[0]])
    if options.json:
        data = {"schema": 1, "added": found.added, "removed": found.removed, "changed": found.changed}
        print(json.dumps(data, indent=1, ensure_ascii=False))
    else:
        print("\n".join(found.lines()))
    return 0
