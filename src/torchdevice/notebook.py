"""`%load_ext torchdevice`: activates in a notebook; `%%torchdevice.report` shows what a cell changed."""

from __future__ import annotations

from html import escape
from typing import Any

from torchdevice.reporting.collect import Report
from torchdevice.reporting.html import fragment
from torchdevice.session import session

_STYLE = (
    "<style>table.torchdevice code { background: none } table.torchdevice .source, table.torchdevice .suggested "
    "{ display: block } table.torchdevice .suggested { color: #17803f } table.torchdevice td, table.torchdevice th "
    "{ text-align: left } table.chart .track { width: 12em } table.chart .bar { height: .7em; background: #e8a87c; "
    "min-width: 2px }</style>"
)


class Shown:
    """A report as a cell's output: a table in a notebook, columns in a terminal."""

    def __init__(self, report: Report) -> None:
        self._report = report

    def __repr__(self) -> str:
        return str(self._report)

    def _repr_html_(self) -> str:
        summary = f"<p>{escape(self._report.summary())}</p>"
        return summary if self._report.empty else f"{_STYLE}{summary}{fragment(self._report)}"


def load(ipython: Any) -> None:
    """Activate, and register the magic command."""
    session.activate()

    def report(line: str, cell: str) -> None:
        """Run the cell, then show what was redirected in it, even if it fails."""
        from IPython.display import display

        before = session.counts()
        outcome = ipython.run_cell(cell)
        display(Shown(Report.of_counts(session.counts().since(before))))
        outcome.raise_error()

    ipython.register_magic_function(report, "cell", "torchdevice.report")


def unload(ipython: Any) -> None:
    """`%unload_ext torchdevice`: deactivate."""
    ipython.magics_manager.magics["cell"].pop("torchdevice.report", None)
    session.deactivate()
