"""The rows of all five documents."""

from __future__ import annotations

from tools.specification import behavior, gap_analysis, implementation, master, performance
from tools.specification.row import Row

DOCUMENTS: dict[str, tuple[Row, ...]] = {
    "behavior.md": behavior.ROWS,
    "gap_analysis_strategy.md": gap_analysis.ROWS,
    "implementation_roadmap.md": implementation.ROWS,
    "master_roadmap.md": master.ROWS,
    "performance_roadmap.md": performance.ROWS,
}
EVERY_ROW = tuple(row for rows in DOCUMENTS.values() for row in rows)
