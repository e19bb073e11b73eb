"""`torchdevice catalog`: every public function of the installed torch, how TorchDevice treats it, what was measured.

The package `catalog` builds the rows. This module collects the data that they need from other packages.
"""

from __future__ import annotations

import difflib
import inspect
import json
import os
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch

import torchdevice
from torchdevice.answers import accelerator
from torchdevice.answers.outside import BUILDERS, OUTSIDE
from torchdevice.answers.rows import ANSWERS, SURFACE, Kind
from torchdevice.catalog.changes import changes, read_rows
from torchdevice.catalog.entries import Entry, build
from torchdevice.catalog.markdown import namespace_page
from torchdevice.catalog.status import STATUSES
from torchdevice.catalog.store import add_note, load_notes, load_results
from torchdevice.catalog.surface import Surface, read_surface
from torchdevice.catalog.treatment import SIMULATED, TRANSLATED, UNSUPPORTED, Patched, Tables
from torchdevice.cli.parsing import Parser
from torchdevice.errors import ConfigError
from torchdevice.fallback.mlx import executor as mlx
from torchdevice.reporting.collect import columns
from torchdevice.session import original, redirect, status
from torchdevice.translate import adapters, moves
from torchdevice.translate.engine import Replacement
from torchdevice.translate.points import Replacements, all_points, resolve_path
from torchdevice.translate.translator import Translator
from torchdevice.virtual import supported

ACTIONS = ("show", "note", "diff")
KINDS = {
    Kind.MAPPED: TRANSLATED,
    Kind.SIMULATED: SIMULATED,
    Kind.NO_OP: SIMULATED,
    Kind.UNSUPPORTED: UNSUPPORTED,
}
MAKING = frozenset(each.__name__ for each in (adapters.fresh_tensor, adapters.tensor_like))
MOVING = frozenset(each.__name__ for each in (moves.convert_to, moves.move_to_cpu, moves.move_to_accelerator))
_PACKAGE = os.path.dirname(torchdevice.__file__) + os.sep
_COMPOSITES = ("CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")


def catalogue(notes: dict[str, str] | None = None) -> tuple[list[Entry], Surface]:
    """The rows for the installed torch. Translation must be off, because the tables are read from torch's objects."""
    surface = read_surface()
    return build(surface, gather(), load_results(), load_notes() if notes is None else notes), surface


def gather() -> Tables:
    """The tables of this version of TorchDevice, as data."""
    return Tables(
        patched=_patched(),
        answers=_answers(),
        kernels=_kernels(),
        rules=frozenset(mlx.rules()) if mlx.installed() else frozenset(),
        making=MAKING,
        moving=MOVING,
    )


def _patched() -> dict[int, Patched]:
    """What an activation replaces on a CPU host and on other hosts, keyed by the id of torch's original object."""
    how = {point.path: point.adapter.__name__ for point in all_points()}
    places = {each.path: (getattr(each.owner, each.name, None), each.value) for each in _elsewhere()}
    with redirect(target="cpu"):
        places |= {path: (original(path), resolve_path(path)) for path in status().patched}
    found: dict[int, Patched] = {}
    for path, (before, value) in places.items():
        if before is not None:
            holder, _, last = path.rpartition(".")
            subject = resolve_path(holder) if last in ("__init__", "__new__") else before
            expected = _signature(before)
            same = expected is None or _signature(_function(value)) == expected
            found.setdefault(id(subject), Patched(path, how.get(path) or _maker(value), same))
    return found


def _maker(value: Any) -> str:
    """For replacements that are not points: `masquerade`, or the module of ours that defines them."""
    module = home_of(value)
    return "masquerade" if module.startswith(("answers.", "torch")) else module


def home_of(value: Any) -> str:
    """The module of our package that holds a function's code, else the function's `__module__`."""
    code = getattr(inspect.unwrap(_function(value), stop=_is_ours), "__code__", None)
    if code is None or not code.co_filename.startswith(_PACKAGE):
        return str(getattr(value, "__module__", "torch"))
    return code.co_filename.removeprefix(_PACKAGE).removesuffix(".py").replace(os.sep, ".")


def _is_ours(value: Any) -> bool:
    return getattr(value, "__code__", _is_ours.__code__).co_filename.startswith(_PACKAGE)


def _elsewhere() -> list[Replacement]:
    """Replacements for hosts with an accelerator, and for targets that lack dtypes. They are not applied."""
    return Replacements(Translator()).select(filling=True, narrowing=True)


def _function(value: Any) -> Any:
    return value.__func__ if isinstance(value, staticmethod) else value


def _signature(value: Any) -> Any:
    try:
        return inspect.signature(value)
    except (TypeError, ValueError):  # functions and classes written in C have no signature to compare
        return None


def _answers() -> dict[str, tuple[str, str]]:
    rows = {
        f"torch.{space}.{row.name}": (KINDS[row.kind], ANSWERS[row.answer].cpu)
        for space, table in SURFACE.items()
        for row in table
    }
    rows |= {row.path: (KINDS[row.kind], row.answer) for row in (*OUTSIDE, *BUILDERS)}
    return rows | {path: (KINDS[Kind.SIMULATED], answer) for path, answer in accelerator.WORDS.items()}


def _kernels() -> dict[str, frozenset[str]]:
    """Operator → the devices for which torch's own table lists a kernel or a composite."""
    backends = {
        "cpu": supported.listed("CPU"),
        "cuda": supported.listed("CUDA"),
        "mps": supported.listed("MPS"),
    }
    found = {}
    for name, operator in supported.operators().items():
        everywhere = not operator.dispatch and not operator.delegate
        everywhere = everywhere or any(key in operator.dispatch for key in _COMPOSITES)
        found[name] = frozenset(device for device, names in backends.items() if everywhere or name in names)
    return found


def torch_version() -> str:
    """The version of torch, for headings."""
    return str(torch.__version__)


def parser() -> Parser:
    """An action with its arguments, or filters for the list."""
    parser = Parser(
        "catalog",
        "List every public function of the installed torch: how TorchDevice treats it, and what was measured.\n"
        "`show NAME` prints everything about one function, `note NAME TEXT` stores a note about it,\n"
        "`diff OLD.json` compares the list with an earlier one.",
        ["torchdevice catalog --namespace torch.cuda --status gap", "torchdevice catalog show torch.zeros"],
    )
    parser.add_argument("action", nargs="?", choices=ACTIONS, help="do this instead of printing the list")
    parser.add_argument("words", nargs="*", metavar="WORD", help="the arguments of the action")
    parser.add_argument("--namespace", metavar="NAME", help="only names in this namespace")
    parser.add_argument(
        "--status", metavar="STATUS", help="only: complete, gap, in_progress, not_applicable, not_started"
    )
    parser.add_argument("--search", metavar="TEXT", help="only names that contain TEXT")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--md", action="store_true", help="print Markdown")
    return parser


def main(words: Sequence[str]) -> int:
    """Run the action. The exit status is 1 if a name is unknown."""
    parsing = parser()
    options = parsing.parse_args(words)
    wanted = {"show": 1, "note": 2, "diff": 1, None: 0}[options.action]
    if len(options.words) != wanted:
        parsing.error(f"{options.action or 'the list'} takes {wanted} argument(s)")
    if options.status and options.status not in STATUSES:
        parsing.error(f"no status {options.status!r}; choose from {', '.join(STATUSES)}")
    if options.action == "diff":
        return _diff(parsing, options)

    try:
        entries, surface = catalogue()
    except ConfigError as error:
        parsing.error(str(error).replace("\n", " "))
    if options.action:
        entry = _find(entries, options.words[0])
        if entry is None:
            return _unknown(options.words[0], entries)
        return _show(entry, options.json) if options.action == "show" else _note(entry, options.words[1])
    chosen = [entry for entry in entries if _matches(entry, options)]
    if options.json:
        rows = [entry.to_json() for entry in chosen]
        data = {"schema": 2, "torch": torch_version(), "unread": surface.unread, "entries": rows}
        print(json.dumps(data, indent=1, ensure_ascii=False))
    elif options.md:
        print(namespace_page(options.namespace or "torch", chosen), end="")
    else:
        print("\n".join(as_text(chosen)))
    return 0


def _matches(entry: Entry, options: Any) -> bool:
    names = (entry.name, *entry.aliases)
    space = options.namespace
    return (
        (not space or any(name == space or name.startswith(f"{space}.") for name in names))
        and (not options.status or entry.status == options.status)
        and (not options.search or any(options.search.lower() in name.lower() for name in names))
    )


def as_text(entries: Sequence[Entry]) -> list[str]:
    """One line per entry, then the totals."""
    rows: list[tuple[str, ...]] = [(e.name, e.kind, e.treatment, e.verified_by, e.status) for e in entries]
    counts = Counter(entry.status for entry in entries)
    sums = ", ".join(f"{count} {status}" for status, count in counts.most_common())
    return [*columns(rows), *([""] if rows else []), f"{len(entries)} entries" + (f": {sums}" if sums else "")]


def _find(entries: Sequence[Entry], name: str) -> Entry | None:
    return next((entry for entry in entries if name == entry.name or name in entry.aliases), None)


def _unknown(name: str, entries: Sequence[Entry]) -> int:
    close = difflib.get_close_matches(name, [entry.name for entry in entries], n=3)
    hint = f", did you mean {', '.join(close)}?" if close else ""
    sys.stderr.write(f"torchdevice catalog: torch {torch_version()} has no public {name}{hint}\n")
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
        ("verified by", entry.verified_by),
        ("plain torch", "can call it here" if entry.plain else "cannot call it here"),
        ("outcomes", outcomes),
        *((f"why {host}", text) for host, text in entry.why.items()),
        ("status", entry.status),
        ("reason", entry.reason),
        ("note", entry.note),
    ]
    print(entry.name)
    print("\n".join(f"  {line}" for line in columns([row for row in rows if row[1]])))
    return 0


def _note(entry: Entry, text: str) -> int:
    print(f"{entry.name}: noted in {add_note(entry.name, text)}")
    return 0


def _diff(parsing: Parser, options: Any) -> int:
    try:
        with open(options.words[0], encoding="utf-8") as file:
            old = read_rows(file.read())
    except (OSError, ValueError) as error:
        parsing.error(
            f"{options.words[0]} is not a catalogue ({error}); make one with `torchdevice catalog --json > old.json`"
        )

    found = changes(old, [entry.to_json() for entry in catalogue()[0]])
    if options.json:
        data = {"schema": 1, "added": found.added, "removed": found.removed, "changed": found.changed}
        print(json.dumps(data, indent=1, ensure_ascii=False))
    else:
        print("\n".join(found.lines()))
    return 0
