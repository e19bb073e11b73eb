"""What a record of a real device would change in the tables of TorchDevice. Pure: a person makes the change."""

from __future__ import annotations

from collections.abc import Iterator

from torchdevice.verify.findings import AGREES, DIFFERS
from torchdevice.verify.predictions import REFUSED
from torchdevice.verify.record import Record

NO_KERNEL = "native_functions.yaml"
TABLES = "src/torchdevice/virtual/supported.py"
DTYPES = "src/torchdevice/policy/dtypes.py"
BUGS = "tests/mac_reports/reports.json"


def provenance(record: Record) -> str:
    """Where it was seen, as a table has to say it."""
    machine = record.machine
    return f"seen on {machine['device_name']}, {machine['system']}, torch {machine['torch']}"


def changes(record: Record) -> Iterator[str]:
    """A line per change: the table, what it should say, and where that was seen."""
    told = [*_refusals(record), *_dtypes(record), *_bugs(record)]
    yield from (f"{line} ({provenance(record)})" for line in dict.fromkeys(told))


def _refusals(record: Record) -> Iterator[str]:
    found: dict[tuple[str, str, str], set[str]] = {}
    for finding in record.findings:
        for row in finding.figures.get("disagreements", ()):
            found.setdefault((row["operator"], row["predicted"], row["reason"]), set()).add(row["dtype"])
    for (operator, predicted, reason), names in sorted(found.items()):
        dtypes = ", ".join(sorted(names))
        if predicted == REFUSED and reason.startswith(NO_KERNEL):
            extra = "MPS_EXTRA" if record.machine["device"] == "mps" else "listed"
            yield f"{TABLES}, {extra}: add {operator.removeprefix('aten::')}, which runs ({dtypes})"
        elif predicted == REFUSED:
            yield f"{TABLES}, denied_dtypes: {operator} does not refuse {dtypes} [{reason}]"
        else:
            yield f"{TABLES}: {operator} refuses {dtypes}, and no table says so"


def _dtypes(record: Record) -> Iterator[str]:
    for finding in record.findings:
        if finding.part == "coherence" and finding.check.startswith("dtype ") and finding.status == DIFFERS:
            yield f"{DTYPES}: {finding.check.removeprefix('dtype ')}: {finding.detail}"


def _bugs(record: Record) -> Iterator[str]:
    if record.machine["device"] != "mps":
        return  # the bugs are those of MPS
    for finding in record.findings:
        if finding.part == "wrong values" and finding.status in (AGREES, DIFFERS):
            yield f"{BUGS}: {finding.check} is {finding.figures.get('state', 'not judged')}"
