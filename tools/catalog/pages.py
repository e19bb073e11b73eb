"""docs/catalog: a page per namespace and a summary, printed from the rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from tools.catalog.gap_rows import CLASSES
from tools.catalog.gaps import Gap
from torchdevice.catalog.entries import Entry
from torchdevice.catalog.markdown import MADE, namespace_page, table_row
from torchdevice.catalog.measured import HOSTS, PASSED
from torchdevice.catalog.status import COMPLETE, GAP, IN_PROGRESS, NOT_APPLICABLE, NOT_STARTED, STATUSES
from torchdevice.catalog.surface import LEFT_OUT

_MEANING = {
    COMPLETE: "was called on every host where it can be called, and gave the values of plain torch or an answer",
    GAP: "differs, fails, or raises because the target lacks the feature; [the gap log](../gaps.md) lists all gaps",
    IN_PROGRESS: "exists and is not changed; the verification run has no call for it yet",
    NOT_APPLICABLE: "cannot be called here: abstract, removed from torch, or for missing hardware or libraries; "
    "each entry has its reason",
    NOT_STARTED: "new in this torch; no verification run has included it",
}


GAP_COLUMNS = (
    "module",
    "function",
    "what TorchDevice does instead",
    "description",
    "severity",
    "proposed action",
    "status",
)


def page_name(namespace: str) -> str:
    """The file of a namespace."""
    return f"{namespace}.md"


def figures(entries: Iterable[Entry]) -> list[tuple[str, int, int, float]]:
    """Host, how many of the calls that plain torch can make succeeded, of how many, and the share in per cent."""
    able = [entry for entry in entries if entry.plain]
    rows = []
    for host in HOSTS:
        passed = sum(entry.outcomes.get(host) == PASSED for entry in able)
        rows.append((host, passed, len(able), 100 * passed / max(len(able), 1)))
    return rows


_HOSTS = {
    "cpu": 'TorchDevice on a machine without an accelerator, calls ask for `"cuda"`',
    "mps": 'TorchDevice on a virtual `mps` with the real backend\'s gaps, fallbacks on, calls ask for `"cuda"`',
    "cuda": 'TorchDevice on a virtual `cuda`, calls ask for `"cuda"`',
}


def summary(entries: list[Entry], torch_version: str) -> str:
    """The first page."""
    counts = Counter(entry.status for entry in entries)
    lines = [f"# The catalogue: torch {torch_version}\n", MADE + "\n"]
    lines += [
        "The catalogue lists every public function, class, method, property and setting of torch, its treatment by",
        "TorchDevice, and the result of a verification run. `torchdevice catalog show torch.zeros` prints one entry.\n",
        f"**{len(entries)} entries.** `catalog/surface.py` defines which names are public.\n",
        "| status | entries | share | meaning |",
        "| --- | ---: | ---: | --- |",
    ]
    lines += [
        f"| {status} | {counts[status]} | {100 * counts[status] / len(entries):.1f}% | {_MEANING[status]} |"
        for status in STATUSES
    ]
    lines += [
        "\n## Comparison with plain torch\n",
        "| host | the same as plain torch | of | share |",
        "| --- | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {_HOSTS[host]} | {passed} | {able} | {share:.2f}% |" for host, passed, able, share in figures(entries)
    ]
    more = sum(1 for entry in entries if not entry.plain and entry.outcomes.get("cpu") == PASSED)
    lines += [
        f"\nA further {more} entries work on a machine without an accelerator, where plain torch cannot call them."
    ]
    by = Counter(entry.verified_by for entry in entries)
    lines += ["\n| verified by | entries |", "| --- | ---: |"]
    lines += [f"| {name} | {count} |" for name, count in by.most_common()]
    treated = Counter(entry.treatment for entry in entries)
    lines += ["\n| treatment | entries |", "| --- | ---: |"]
    lines += [f"| {name} | {count} |" for name, count in treated.most_common()]
    lines += ["\n## MLX\n", *_mlx(entries)]
    lines += ["\n## Namespaces\n", f"| namespace | entries | {' | '.join(STATUSES)} |", "| --- |" + " ---: |" * 6]
    for space, members in spaces(entries).items():
        figures_of = Counter(entry.status for entry in members)
        cells = " | ".join(str(figures_of[status]) for status in STATUSES)
        lines.append(f"| [{space}]({page_name(space)}) | {len(members)} | {cells} |")
    lines += ["\n## Left out\n", *(f"- `{name}`: {why}" for name, why in LEFT_OUT.items())]
    return "\n".join(lines) + "\n"


def _mlx(entries: list[Entry]) -> Iterator[str]:
    own = [entry for entry in entries if entry.mlx and not entry.name.startswith("torch.Tensor.")]
    counts = Counter(entry.mlx_confidence for entry in own)
    yield f"{len(own)} functions and modules have an MLX equivalent that gave the same values in a test."
    yield "A tensor method has the equivalent of its function.\n"
    yield "| confidence | functions |\n| --- | ---: |"
    yield from (f"| {name} | {count} |" for name, count in counts.most_common())


def spaces(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    """The rows by namespace, in alphabetical order."""
    grouped: dict[str, list[Entry]] = {}
    for entry in entries:
        grouped.setdefault(entry.namespace, []).append(entry)
    return dict(sorted(grouped.items()))


def gap_log(rows: Iterable[Gap], torch_version: str) -> str:
    """docs/gaps.md."""
    known = list(rows)
    counts = Counter(row.kind for row in known)
    lines = [f"# The gap log: torch {torch_version}\n", f"{MADE} {len(known)} gaps.\n"]
    lines += [f"- {counts[kind]} × {kind}" for kind in CLASSES]
    for kind in filter(counts.__getitem__, CLASSES):
        lines += [f"\n## {kind[0].upper()}{kind[1:]}\n"]
        lines += [f"| {' | '.join(GAP_COLUMNS)} |", "| --- " * len(GAP_COLUMNS) + "|"]
        for row in known:
            if row.kind == kind:
                function = row.name.removeprefix(f"{row.module}.")
                words = (row.instead, row.description, row.severity, row.action, row.status)
                lines.append(table_row((f"`{row.module}`", f"`{function}`", *words)))
    return "\n".join(lines) + "\n"


def write_all(folder: Path, entries: list[Entry], gaps: Iterable[Gap], torch_version: str) -> None:
    """docs/catalog and docs/gaps.md, where `folder` is docs."""
    target = folder / "catalog"
    target.mkdir(parents=True, exist_ok=True)
    for old in target.glob("*.md"):
        old.unlink()
    (target / "README.md").write_text(summary(entries, torch_version), encoding="utf-8")
    for space, members in spaces(entries).items():
        (target / page_name(space)).write_text(namespace_page(space, members), encoding="utf-8")
    (folder / "gaps.md").write_text(gap_log(gaps, torch_version), encoding="utf-8")
