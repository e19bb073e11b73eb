"""The result of a verification run for one name: the record, and the names of the outcomes."""

from __future__ import annotations

from dataclasses import dataclass, field

HOSTS = ("cpu", "mps", "cuda")
PASSED, DIFFERS, RAISED, NONE = OUTCOMES = ("passed", "differs", "raised", "none")


@dataclass(frozen=True)
class Measured:
    """One measurement: the database or call that was run, whether plain torch can run it, and the outcome per host.

    - `why`: the difference or the error, for each host whose result differs from plain torch.
    - `reason`: why the name cannot be run: an abstract class, a name that was removed, missing hardware or libraries.
    - `elsewhere`: operators of the call that did not run on MPS, because it has no kernel for them.
    """

    by: str = ""
    plain: bool = False
    outcomes: dict[str, str] = field(default_factory=dict)
    why: dict[str, str] = field(default_factory=dict)
    reason: str = ""
    elsewhere: tuple[str, ...] = ()
