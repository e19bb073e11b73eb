"""The gap log: every name that does not do what it does in plain torch, in classes, with what to do about it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tools.catalog.proof import needs_proof, proven
from tools.catalog.results import Called
from torchdevice.catalog.entries import Entry
from torchdevice.catalog.status import DIFFERS, HOSTS, RAISED
from torchdevice.catalog.treatment import UNSUPPORTED

SIGNATURE = "signature mismatch"
UNPATCHED = "unpatched API that takes a device"
DIVERGENCE = "behavioural divergence"
LIMIT = "limitation of the target itself"
CLASSES = (SIGNATURE, UNPATCHED, DIVERGENCE, LIMIT)
ACTIONS = {
    SIGNATURE: "give the replacement torch's signature",
    UNPATCHED: "call it with device='cuda' in the verification run, or give it a row in translate.points",
    DIVERGENCE: "fix, or say in a note why it stays",
    LIMIT: "none: raises an error that says so",
}


@dataclass(frozen=True)
class Gap:
    """One row of the log."""

    name: str
    kind: str
    differs: str
    severity: str
    action: str
    status: str


def gaps(entries: Iterable[Entry], called: Mapping[str, Called]) -> Iterator[Gap]:
    """All of them, class by class."""
    rows = [gap for entry in entries for gap in _of(entry, called.get(entry.name))]
    for kind in CLASSES:
        yield from (row for row in rows if row.kind == kind)


def _of(entry: Entry, called: Called | None) -> Iterator[Gap]:
    status = "accepted" if entry.note else "open"
    if entry.same_signature is False:
        yield Gap(entry.name, SIGNATURE, "the signature is not torch's", "medium", ACTIONS[SIGNATURE], status)
    if needs_proof(entry) and not proven(entry, called):
        parameters = ", ".join(entry.device_parameters)
        yield Gap(
            entry.name, UNPATCHED, f"no call that gave `{parameters}` has succeeded", "low", ACTIONS[UNPATCHED], status
        )
    if entry.treatment == UNSUPPORTED:
        yield Gap(entry.name, LIMIT, entry.how, "low", ACTIONS[LIMIT], "by design")
        return
    failed = [host for host in HOSTS if entry.outcomes.get(host) in (DIFFERS, RAISED)]
    if failed:
        words = "; ".join(f"{host}: {entry.why.get(host, entry.outcomes[host])}" for host in failed)
        severity = "high" if "cpu" in failed else "medium"
        action = f"{ACTIONS[DIVERGENCE]}: {entry.note}" if entry.note else ACTIONS[DIVERGENCE]
        yield Gap(entry.name, DIVERGENCE, words, severity, action, status)
