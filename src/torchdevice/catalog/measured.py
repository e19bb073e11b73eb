"""What a verification run found out about one name: the record, and its words."""

from __future__ import annotations

from dataclasses import dataclass, field

HOSTS = ("cpu", "mps", "cuda")
PASSED, DIFFERS, RAISED, NONE = OUTCOMES = ("passed", "differs", "raised", "none")


@dataclass(frozen=True)
class Measured:
    """What was run: by which database or call, whether plain torch can, and what came of it on each host.

    `why`: what differs, or the error, for each host that does not do what plain torch does. `reason`: why there is
    nothing to run here: an abstract class, a name that was removed, hardware or libraries that are not here.
    `elsewhere`: operators of the call that ran on another device than MPS, which has no kernel for them.
    """

    by: str = ""
    plain: bool = False
    outcomes: dict[str, str] = field(default_factory=dict)
    why: dict[str, str] = field(default_factory=dict)
    reason: str = ""
    elsewhere: tuple[str, ...] = ()
