"""Computes the status of a name from its measurements. No status is written by hand."""

from __future__ import annotations

from torchdevice.catalog.measured import DIFFERS, HOSTS, NONE, PASSED, RAISED, Measured
from torchdevice.catalog.treatment import UNSUPPORTED

COMPLETE = "complete"
GAP = "gap"
IN_PROGRESS = "in_progress"
NOT_APPLICABLE = "not_applicable"
NOT_STARTED = "not_started"
STATUSES = (COMPLETE, GAP, IN_PROGRESS, NOT_APPLICABLE, NOT_STARTED)


def status_of(measured: Measured | None, treatment: str) -> str:
    """The status according to the measurement."""
    if measured is None:
        return NOT_STARTED
    outcomes = [measured.outcomes.get(host, NONE) for host in HOSTS]
    if treatment == UNSUPPORTED or DIFFERS in outcomes or RAISED in outcomes:
        return GAP
    if PASSED in outcomes:
        return COMPLETE
    return NOT_APPLICABLE if measured.reason else IN_PROGRESS
