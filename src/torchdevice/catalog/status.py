"""What the measurements amount to. A status is computed here from what was run; nobody can claim one."""

from __future__ import annotations

from dataclasses import dataclass, field

from torchdevice.catalog.treatment import UNSUPPORTED

NOT_STARTED, IN_PROGRESS, COMPLETE, NOT_APPLICABLE, GAP = (
    *("not_started", "in_progress", "complete", "not_applicable", "gap"),
)
STATUSES = (COMPLETE, GAP, IN_PROGRESS, NOT_APPLICABLE, NOT_STARTED)
HOSTS = ("cpu", "mps", "cuda")
PASSED, DIFFERS, RAISED, NONE = "passed", "differs", "raised", "none"

# Refusals by which torch itself says that a call has nothing to do on this machine or in this version.
NOT_HERE = (
    "was removed",
    "is now removed",
    "has been removed",
    "deprecated since version",
    "abstract class",
    "NotImplementedError",
    "cannot be instantiated",
    "only supported on",
    "is only available",
    "not available",
    "not compiled with",
    "was not built",
    "not built with",
    "No module named",
    "Invalid device, must be",
    "Could not run",
    "Protocols cannot be instantiated",
    "TypedDict",
    "needs to be overridden",
    "must be implemented",
    "You must implement",
    "requires a GPU",
    "not linked with",
    "no attribute '_",
    "when none is available",
    "Accelerator expected",
    "CUDA_HOME",
    "CudaOnlyError",
)


@dataclass(frozen=True)
class Measured:
    """What was run: by which database or call, whether plain torch can, and what came of it on each host."""

    by: str = ""
    call: str = ""
    plain: bool = False
    outcomes: dict[str, str] = field(default_factory=dict)
    why: dict[str, str] = field(default_factory=dict)

    @property
    def gives_the_device(self) -> bool:
        """Whether a device-like parameter itself was given "cuda"."""
        return self.by == "ModuleInfo" or any(
            mark in self.call for mark in ("=D", "(D", "[D", ", D", "'cuda'", "else [0]")
        )


def status_of(measured: Measured | None, treatment: str) -> str:
    """The status, by what was measured."""
    if measured is None:
        return NOT_STARTED
    if treatment == UNSUPPORTED:
        return GAP
    outcomes = [measured.outcomes.get(host, NONE) for host in HOSTS]
    if DIFFERS in outcomes or RAISED in outcomes:
        return GAP
    if measured.plain and all(outcome == PASSED for outcome in outcomes):
        return COMPLETE
    if PASSED in outcomes:
        return COMPLETE
    reason = measured.why.get("cpu", "")
    return NOT_APPLICABLE if any(words in reason for words in NOT_HERE) else IN_PROGRESS
