"""The codebase map in docs/architecture.md: which file of ours answers for which part of torch. Read from the rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from torchdevice.catalog.entries import Entry

BEGIN, END = "<!-- codebase map: written by make catalog -->", "<!-- end of the codebase map -->"


def codebase_map(entries: Iterable[Entry], modules: dict[str, str]) -> str:
    """`modules`: entry name → the module of ours whose code answers."""
    counted: dict[str, Counter[str]] = {}
    examples: dict[str, list[str]] = {}
    for entry in entries:
        module = modules.get(entry.name)
        if module is not None:
            counted.setdefault(module, Counter())[entry.namespace] += 1
            examples.setdefault(module, []).append(entry.name)
    lines = ["| module of ours | answers for | for example |", "| --- | --- | --- |"]
    for module, spaces in sorted(counted.items()):
        parts = ", ".join(f"{space} {count}" for space, count in spaces.most_common(8))
        shown = ", ".join(f"`{name}`" for name in examples[module][:3])
        lines.append(f"| `{module}` | {parts} | {shown} |")
    return "\n".join(lines)


def put_into(path: Path, text: str) -> None:
    """Replace what stands between the marks."""
    page = path.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    path.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")
