"""The devices of which a file was read: a row each, kept in seen.json, and the section of docs/mac.md."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from torchdevice.printable import printable
from torchdevice.verify.findings import STATUSES
from torchdevice.verify.record import Record
from torchdevice.verify.summary import PLURAL, disagreements

KEPT = Path(__file__).parent / "seen.json"
_BUILD = re.compile(r"(?<=\d)-.*")  # the end of a kernel's version: how it was built
NONE_YET = "Seen on a real device: none yet."
HEADINGS = """| device | system | torch | date | checks | disagreements |
| --- | --- | --- | --- | --- | ---: |"""
SECTION = """## Seen on a real device

Three commands check TorchDevice on a Mac, and on any other accelerator:

```console
$ torchdevice doctor          # the installation
$ torchdevice verify          # the device, in about ten minutes; Ctrl-C interrupts it, the same command goes on
$ torchdevice env             # versions and settings for the issue
```

`verify` writes a JSON file and an HTML page beside it. Attach both to an issue. They contain the device, the versions
and the result of every check, and no user name, host name or path. `python -m tools.verified FILE` checks such a file,
prints what it changes in the tables of TorchDevice, and adds a row here ([cli.md](cli.md#verify)).
"""


@dataclass(frozen=True)
class Seen:
    """One device with one torch. `checks` counts them by status; `disagreements` are in the words of the summary."""

    device: str
    name: str
    system: str
    torch: str
    torchdevice: str
    date: str
    checks: dict[str, int]
    disagreements: list[str]

    @property
    def key(self) -> tuple[str, str, str]:
        """What a newer file of the same device and torch replaces."""
        return self.name, self.system, self.torch


def row_of(record: Record) -> Seen:
    """The short form of a record."""
    machine = record.machine
    counts = Counter(finding.status for finding in record.findings)
    return Seen(
        machine["device"],
        machine["device_name"],
        _BUILD.sub("", machine["system"]),
        machine["torch"],
        machine["torchdevice"],
        record.date,
        {status: counts[status] for status in STATUSES if counts[status]},
        [f"{each.part}: {each.text}" for each in disagreements(record)],
    )


def merged(kept: Sequence[Seen], new: Sequence[Seen]) -> list[Seen]:
    """The newest row of each device and torch, in a stable order."""
    rows = {row.key: row for row in sorted([*kept, *new], key=lambda row: row.date)}
    return [rows[key] for key in sorted(rows)]


def load(path: Path = KEPT) -> list[Seen]:
    """What is kept; nothing if there is no file yet."""
    return [Seen(**row) for row in json.loads(path.read_text(encoding="utf-8"))] if path.exists() else []


def save(rows: Sequence[Seen], path: Path = KEPT) -> None:
    """For the page."""
    path.write_text(json.dumps([asdict(row) for row in rows], indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def section(rows: Sequence[Seen]) -> Iterator[str]:
    """Of docs/mac.md: how to check a device, and what was seen."""
    yield SECTION
    if not rows:
        yield NONE_YET
        return
    yield HEADINGS
    for row in rows:
        checks = ", ".join(f"{number:,} {PLURAL.get(status, status)}" for status, number in row.checks.items())
        cells = (f"{row.name} ({row.device})", row.system, row.torch, row.date, checks, str(len(row.disagreements)))
        yield f"| {' | '.join(map(cell, cells))} |"


def cell(text: str) -> str:
    """Text of a foreign file that can neither end a column nor be read as HTML."""
    return printable(text).replace("|", "\\|").replace("<", "&lt;")
