"""What the measurements amount to. A status is computed here from what was run; nobody can claim one."""

from __future__ import annotations

from dataclasses import dataclass, field

from torchdevice.catalog.treatment import UNSUPPORTED

COMPLETE = "complete"
GAP = "gap"
IN_PROGRESS = "in_progress"
NOT_APPLICABLE = "not_applicable"
NOT_STARTED = "not_started"
STATUSES = (COMPLETE, GAP, IN_PROGRESS, NOT_APPLICABLE, NOT_STARTED)

HOSTS = ("cpu", "mps", "cuda")
PASSED, DIFFERS, RAISED, NONE = OUTCOMES = ("passed", "differs", "raised", "none")


@dataclass(frozen=True)
class Measured:
    """What was run: by which database or call, whether plain torch can, and what came of it on each host.

    `why`: what differs, or the error, for each host that does not do what plain torch does. `absent`: torch itself has
    nothing to run here: an abstract class, a name that was removed, hardware or libraries that it was built without.
    """

    by: str = ""
    plain: bool = False
    outcomes: dict[str, str] = field(default_factory=dict)
    why: dict[str, str] = field(default_factory=dict)
    absent: bool = False


def status_of(measured: Measured | None, treatment: str) -> str:
    """The status, by what was measured."""
    if measured is None:
        return NOT_STARTED
    outcomes = [measured.outcomes.get(host, NONE) for host in HOSTS]
    if treatment == UNSUPPORTED or DIFFERS in outcomes or RAISED in outcomes:
        return GAP
    if PASSED in outcomes:
        return COMPLETE
    return NOT_APPLICABLE if measured.absent else IN_PROGRESS
