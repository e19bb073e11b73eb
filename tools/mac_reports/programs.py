"""Writes the programs of reports of wrong values into the package, for `torchdevice verify`.

python -m tools.mac_reports.programs
"""

from __future__ import annotations

import json

from tools.mac_reports import table
from tools.mac_reports.table import ROOT

DATA = ROOT / "src" / "torchdevice" / "verify" / "wrong_values.json"
KIND = "wrong value"


def text() -> str:
    """The content of the file."""
    rows = [
        {
            "id": report.id,
            "link": report.link,
            "title": report.title,
            "fixed": report.fixed,
            "program": report.program.read_text(encoding="utf-8"),
        }
        for report in table.reports()
        if report.kind == KIND
    ]
    return json.dumps(rows, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    DATA.write_text(text(), encoding="utf-8")
