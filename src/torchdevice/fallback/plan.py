"""What an operator's schema says about moving its arguments: which are written, which are results, what aliases what.

Read once an operator, never guessed from its name. How tensors are moved is `cpu`; who asks is `kernels`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torchdevice._torch import dispatcher

FUNCTIONAL, IN_PLACE, OUT, VIEW = "functional", "in-place", "out", "view"

FRESH = None


class Declined(Exception):  # noqa: N818 - an answer, not a failure
    """This executor cannot do this call; the reason goes into the record and the next one is asked."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class Plan:
    """How to call an operator elsewhere.

    `written` and `outs` are names of arguments; `returned` says for each result the argument that it *is* (a written
    one), or None for a fresh tensor; `viewed` the argument that results are views of. `recorded`: autograd watches the
    copies, so that each must be one that it knows. `samples`: it draws from a generator, given or not.
    """

    name: str
    operator: Any
    kind: str
    arguments: tuple[str, ...]
    written: frozenset[str]
    outs: frozenset[str]
    returned: tuple[str | None, ...]
    viewed: str | None
    single: bool
    samples: bool = False
    recorded: bool = False


def read_plan(name: str) -> Plan | None:
    """The plan for `aten::add.Tensor`; None where torch gives no handle to call it by."""
    operator = dispatcher.find_operator(name)
    if operator is None:
        return None
    schema = dispatcher.schema_of(operator)
    written: set[str] = set()
    outs: set[str] = set()
    by_alias: dict[str, str] = {}
    viewed = None
    for argument in schema.arguments:
        if argument.alias_info is None:
            continue
        if argument.alias_info.is_write:
            (outs if argument.is_out else written).add(argument.name)
        for label in argument.alias_info.before_set:
            by_alias[label] = argument.name
    returned: list[str | None] = []
    for result in schema.returns:
        labels = sorted(result.alias_info.before_set) if result.alias_info is not None else []
        source = next((by_alias[label] for label in labels if label in by_alias), None)
        if source is not None and source not in written | outs:
            viewed, source = source, FRESH
        returned.append(source)
    kind = VIEW if viewed else OUT if outs else IN_PLACE if written else FUNCTIONAL
    return Plan(
        name=name,
        operator=operator,
        kind=kind,
        arguments=tuple(argument.name for argument in schema.arguments),
        written=frozenset(written),
        outs=frozenset(outs),
        returned=tuple(returned),
        viewed=viewed,
        single=len(schema.returns) == 1,
        samples=dispatcher.draws_random_numbers(operator),
    )
