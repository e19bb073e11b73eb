"""Writes docs/specification.md from the rows.

python -m tools.specification.page
"""

from __future__ import annotations

import collections
from collections.abc import Iterator
from pathlib import Path

from tools.specification.row import VERDICTS, Row
from tools.specification.table import DOCUMENTS, EVERY_ROW

PAGE = Path(__file__).parents[2] / "docs" / "specification.md"
HEAD = """# The user's documents, requirement by requirement

Printed by `python -m tools.specification.page`; do not edit. The rows are in `tools/specification`.

Five documents specify TorchDevice. This page lists their requirements in short form. A requirement that occurs in
several documents has one row, under the document that describes it in most detail.

| verdict | meaning |
| --- | --- |
| met | the tests or commands in the row verify it |
| partly | they verify a part; the note names the missing part |
| missing | not implemented; the note describes the present behavior |
| contradicted on purpose | the implementation differs; the note gives the reason, the linked page the details |
| not checkable without a Mac | only a test on Apple's hardware can verify it, and none was made |

Rows about MPS that are met were verified on a virtual `mps`, which raises the errors that a Mac raises according to
torch's own lists ([virtual.md](virtual.md)). Functions below `tests/semantics/programs` are run by
`tests/semantics/test_semantics.py`.
"""
HEADINGS = {
    "behavior.md": "behavior.md: what TorchDevice does",
    "gap_analysis_strategy.md": "gap_analysis_strategy.md: how coverage is verified",
    "implementation_roadmap.md": "implementation_roadmap.md: priorities and status tracking",
    "master_roadmap.md": "master_roadmap.md: phases and targets",
    "performance_roadmap.md": "performance_roadmap.md: patching, fallback, MLX, speed",
}


def summary() -> Iterator[str]:
    """How many rows have which verdict, by document."""
    yield f"| document | rows | {' | '.join(VERDICTS)} |"
    yield f"| --- | ---: |{' ---: |' * len(VERDICTS)}"
    for name, rows in {**DOCUMENTS, "all": EVERY_ROW}.items():
        counts = collections.Counter(row.verdict for row in rows)
        yield f"| {name} | {len(rows)} | {' | '.join(str(counts[verdict]) for verdict in VERDICTS)} |"


def table(rows: tuple[Row, ...]) -> Iterator[str]:
    """The rows of one document."""
    yield "| | section | requirement | verdict | shown by | note |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for row in rows:
        shown = "<br>".join(map(_reference, row.shown_by)) or "–"
        yield f"| {row.id} | {row.section} | {row.requirement} | {row.verdict} | {shown} | {row.note} |"


def _reference(shown: str) -> str:
    """A page of docs/ as a link, a test or a command as it is written."""
    page = shown.removeprefix("docs/")
    return f"`{shown}`" if page == shown else f"[{page}]({page})"


def page() -> str:
    """The text of docs/specification.md."""
    parts = [HEAD, *summary()]
    for name, rows in DOCUMENTS.items():
        parts += [f"\n## {HEADINGS[name]}\n", *table(rows)]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
