"""A list of rows as a page of Markdown: `torchdevice catalog --md`, and the pages of docs/catalog."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from torchdevice.catalog.entries import Entry
from torchdevice.catalog.measured import HOSTS
from torchdevice.catalog.status import STATUSES

MADE = "Written by `make catalog`; do not edit."


def namespace_page(space: str, entries: Sequence[Entry]) -> str:
    """One page."""
    counts = Counter(entry.status for entry in entries)
    words = ", ".join(f"{counts[status]} {status}" for status in STATUSES if counts[status])
    lines = [f"# {space}\n", f"{MADE} {len(entries)} entries: {words}.\n"]
    lines += ["| name | kind | role | treatment | native | MLX | cpu · mps · cuda | by | status |"]
    lines += ["| --- " * 9 + "|"]
    lines += [_row(entry) for entry in entries]
    return "\n".join(lines) + "\n"


def table_row(cells: Iterable[str]) -> str:
    """A line of a table, with special characters escaped."""
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def _row(entry: Entry) -> str:
    return table_row(
        (
            f"`{entry.name}`",
            entry.kind,
            entry.role,
            entry.treatment + (f": {entry.how}" if entry.how else ""),
            " ".join(entry.native) or "–",
            f"{entry.mlx_confidence}: `{entry.mlx}`" if entry.mlx else "–",
            " · ".join(entry.outcomes.get(host, "–") for host in HOSTS),
            entry.verified_by,
            entry.status + (f" ({entry.note or entry.reason})" if entry.note or entry.reason else ""),
        )
    )
