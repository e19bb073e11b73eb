"""Reads files of `torchdevice verify`: checks them, prints what they change, and keeps a row for docs/mac.md.

python -m tools.verified FILE...
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from tools.mac_reports.page import write_page
from tools.verified import seen
from tools.verified.changes import changes, provenance
from torchdevice.errors import ConfigError
from torchdevice.printable import printable, printable_lines
from torchdevice.verify.record import Record, read
from torchdevice.verify.summary import as_text

USAGE = "usage: python -m tools.verified FILE..."


def main(paths: Sequence[str]) -> int:
    """Print the summary and the changes of each file. A record of a virtual device is printed and not kept."""
    if not paths:
        print(USAGE, file=sys.stderr)
        return 2
    try:
        records = [read(Path(path)) for path in paths]
    except ConfigError as error:
        print(printable_lines(str(error)), file=sys.stderr)
        return 1
    for record in records:
        _tell(record)
    real = [seen.row_of(record) for record in records if not record.machine["virtual"]]
    if real:
        seen.save(seen.merged(seen.load(), real))
        write_page()
    return 0


def _tell(record: Record) -> None:
    print(printable_lines(as_text(record)))
    found = list(changes(record))
    print(f"\nWhat it changes: {len(found)}")
    for line in found:
        print(printable(f"  {line}"))
    if record.machine["virtual"]:
        print(printable(f"  not kept: {provenance(record)} is a virtual device"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
