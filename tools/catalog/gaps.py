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
    parameters = ", ".join(entry.device_parameters)
    if entry.same_signature is False:
        yield _row(entry, SIGNATURE, "calls torch's function", "the signature is not torch's", MEDIUM)
    if needs_proof(entry) and not proven(entry, called):
        yield _row(entry, UNPATCHED, "leaves the call alone", f"no call that gave `{parameters}` has succeeded", LOW)
    failed = [host for host in HOSTS if entry.outcomes.get(host) in (DIFFERS, RAISED)]
    words = "; ".join(f"{host}: {entry.why.get(host, entry.outcomes[host])}" for host in failed)
    severity = HIGH if "cpu" in failed else MEDIUM
    if entry.treatment == UNSUPPORTED:
        yield _row(entry, LIMIT, entry.how, entry.how, LOW)
    elif failed:
        yield _row(entry, DIVERGENCE, entry.how or "leaves the call alone", _joined(entry.note, words), severity)
    elif entry.name in KNOWN:
        yield _row(entry, KNOWN[entry.name].kind, "", "", LOW)


def _row(entry: Entry, kind: str, instead: str, description: str, severity: str) -> Gap:
    found = Known(kind, instead, _UNDECIDED, severity, OPEN)
    known = KNOWN.get(entry.name, found) if kind not in (SIGNATURE, UNPATCHED) else found
    words = known.description or description
    if (
        known.description
        and description not in (known.description, known.instead)
        and entry.outcomes
        and kind == DIVERGENCE
    ):
        words = _joined(known.description, description)
    return Gap(
        entry.name, known.kind, entry.namespace, known.instead, words, known.severity, known.action, known.status
    )


def _joined(*texts: str) -> str:
    return ". ".join(dict.fromkeys(text for text in texts if text))
