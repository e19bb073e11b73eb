"""A requirement of the user's documents, and the five verdicts."""

from __future__ import annotations

from dataclasses import dataclass

MET = "met"
PARTLY = "partly"
MISSING = "missing"
CONTRADICTED = "contradicted on purpose"
NO_MAC = "not checkable without a Mac"
VERDICTS = (MET, PARTLY, MISSING, CONTRADICTED, NO_MAC)

# Runs every function below tests/semantics/programs on three hosts under both policies.
SEMANTICS = "tests/semantics/test_semantics.py::test_programs_mean_what_they_mean_in_plain_torch"


@dataclass(frozen=True)
class Row:
    """One requirement. `shown_by`: tests (path::name), commands, and pages that give the reason."""

    id: str
    section: str
    requirement: str
    verdict: str
    shown_by: tuple[str, ...] = ()
    note: str = ""
