"""The codebase map in docs/architecture.md: which module handles which part of torch. Built from the rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from torchdevice.answers import accelerator, outside
from torchdevice.answers.outside import BUILDERS, OUTSIDE
from torchdevice.catalog.entries import Entry
from torchdevice.catalog.treatment import FALLBACK, PASSTHROUGH
from torchdevice.cli.catalog import home_of
from torchdevice.session import redirect, status
from torchdevice.translate.points import all_points, resolve_path

BEGIN, END = "<!-- codebase map: written by make catalog -->", "<!-- end of the codebase map -->"


_NAMESPACES = {
    "cuda": "torchdevice.answers.scoped",
    "xpu": "torchdevice.answers.scoped",
    "mps": "torchdevice.answers.mps",
}


def answering_modules(entries: Iterable[Entry]) -> dict[str, str]:
    """The module that handles each name: the one whose code its treatment runs. Names that pass through have none."""
    adapters_of = {point.path: point.adapter.__module__ for point in all_points()}
    rows_of = dict.fromkeys(accelerator.WORDS, accelerator.__name__)
    rows_of |= dict.fromkeys((row.path for row in (*OUTSIDE, *BUILDERS)), outside.__name__)
    with redirect(target="cpu"):
        written = {path: f"torchdevice.{home_of(resolve_path(path))}" for path in status().patched}
    found = {}
    for entry in entries:
        path = entry.how.partition(" by ")[0]
        if path in adapters_of:
            found[entry.name] = adapters_of[path]
        elif entry.treatment == FALLBACK:
            found[entry.name] = "torchdevice.fallback"
        elif entry.treatment != PASSTHROUGH:
            by_row = rows_of.get(entry.name) or rows_of.get(path) or _NAMESPACES.get(entry.name.split(".")[1])
            found[entry.name] = by_row or written[path]
    return found


def codebase_map(entries: Iterable[Entry], modules: dict[str, str]) -> str:
    """`modules`: entry name → the module that handles it."""
    counted: dict[str, Counter[str]] = {}
    examples: dict[str, list[str]] = {}
    for entry in entries:
        module = modules.get(entry.name)
        if module is not None:
            counted.setdefault(module, Counter())[entry.namespace] += 1
            examples.setdefault(module, []).append(entry.name)
    lines = ["| module | handles | for example |", "| --- | --- | --- |"]
    for module, spaces in sorted(counted.items()):
        parts = ", ".join(f"{space} {count}" for space, count in spaces.most_common(8))
        shown = ", ".join(f"`{name}`" for name in examples[module][:3])
        lines.append(f"| `{module}` | {parts} | {shown} |")
    return "\n".join(lines)
