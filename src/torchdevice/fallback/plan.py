"""What an operator's schema says about its arguments: which are written, which are results, and what aliases what.

The schema is read once per operator. `cpu` copies the tensors; `kernels` uses the plans.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torchdevice._torch import dispatcher

FUNCTIONAL, IN_PLACE, OUT, VIEW = "functional", "in-place", "out", "view"

FRESH = None


class Declined(Exception):  # noqa: N818 - an answer, not a failure
    """This executor cannot run this call. The reason is recorded, and the next executor is tried."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class Plan:
    """How to call an operator on another device.

    `written` and `outs` are names of arguments. `returned` gives for each result the written argument that it *is*, or
    None for a new tensor. `viewed` is the argument that results are views of. `recorded`: autograd records the copies,
    so each must be differentiable. `samples`: the operator draws from a generator, given or default.
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
    """The plan for an operator such as `aten::add.Tensor`; None if torch has no handle to call it."""
    operator = dispatcher.find_operator(name)
    if operator is None:
        return None
    schema = dispatcher.schema_of(operator)
    written: set[str] = set()
    outs: set[str] = set()
    by_alias: dict[str, str] = {}
    viewed = None
    for argument in schema.arguments:
        if dispatcher.is_written(schema, argument):
            (outs if argument.is_out else written).add(argument.name)
        for label in argument.alias_info.before_set if argument.alias_info is not None else ():
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
