"""The gap log: every name that does not do what it does in plain torch, in classes, with what to do about it.

A gap is found from the measurements, the tables and the rows of `gap_rows`, which has what is known of each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tools.catalog.gap_rows import (
    CLASSES,
    DIVERGENCE,
    HIGH,
    KNOWN,
    LIMIT,
    LOW,
    MEDIUM,
    OPEN,
    SIGNATURE,
    UNPATCHED,
    Known,
)
from tools.catalog.proof import needs_proof, proven
from tools.catalog.results import Called
from torchdevice.catalog.entries import Entry
from torchdevice.catalog.measured import DIFFERS, HOSTS, RAISED
from torchdevice.catalog.treatment import UNSUPPORTED

_UNDECIDED = "decide whether it is to be fixed, and write a row in `tools/catalog/gap_rows.py`"


@dataclass(frozen=True)
class Gap:
    """One row of the log."""

    name: str
    kind: str
    module: str
    instead: str
    description: str
    severity: str
    action: str
    status: str


def gaps(entries: Iterable[Entry], called: Mapping[str, Called]) -> Iterator[Gap]:
    """All of them, class by class."""
    rows = [gap for entry in entries for gap in _of(entry, called.get(entry.name))]
    for kind in CLASSES:
        yield from (row for row in rows if row.kind == kind)


def _of(entry: Entry, called: Called | None) -> Iterator[Gap]:
    if entry.same_signature is False:
        yield _gap(entry, Known(SIGNATURE, "calls torch's function", _UNDECIDED, MEDIUM, OPEN, "not torch's signature"))
    if needs_proof(entry) and not proven(entry, called):
        words = f"no call that gave `{', '.join(entry.device_parameters)}` has succeeded"
        yield _gap(entry, Known(UNPATCHED, "leaves the call alone", _UNDECIDED, LOW, OPEN, words))
    failed = [host for host in HOSTS if entry.outcomes.get(host) in (DIFFERS, RAISED)]
    if entry.treatment == UNSUPPORTED:
        yield _gap(entry, KNOWN.get(entry.name, Known(LIMIT, entry.how, _UNDECIDED, LOW, OPEN, entry.how)))
    elif failed:
        severity = HIGH if "cpu" in failed else MEDIUM
        instead = entry.how or "leaves the call alone"
        known = KNOWN.get(entry.name, Known(DIVERGENCE, instead, _UNDECIDED, severity, OPEN, entry.note))
        yield _gap(entry, known, (f"{host}: {entry.why.get(host, entry.outcomes[host])}" for host in failed))
    elif entry.name in KNOWN:
        yield _gap(entry, KNOWN[entry.name])


def _gap(entry: Entry, known: Known, measured: Iterable[str] = ()) -> Gap:
    description = "; ".join(text for text in (known.description, *measured) if text)
    words = (known.instead, description, known.severity, known.action, known.status)
    return Gap(entry.name, known.kind, entry.namespace, *words)
