"""Expressions that might call a public object, best guess first: from what is written, from signatures and schemas."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch

from tools.catalog.exemplars import OBJECTS, OTHERS
from tools.catalog.vocabulary import ANYTHING, BY_NAME, BY_TYPE
from tools.catalog.written import NEVER, WRITTEN
from torchdevice.catalog.signatures import DEVICE_LIKE, NOT_A_REQUEST, Parameter, variants
from torchdevice.catalog.surface import CLASS, FUNCTION, METHOD, SETTING, Found

ATTEMPTS = 40
OVERLOADS = 4


def expressions(found: Found, surface: dict[str, Found]) -> Iterator[str]:
    """At most `ATTEMPTS` ways to call it."""
    if found.name in NEVER:
        return
    if found.name in WRITTEN:
        yield WRITTEN[found.name]
        return
    yield from islice(_guessed(found, surface), ATTEMPTS)


def _guessed(found: Found, surface: dict[str, Found]) -> Iterator[str]:
    if found.kind == SETTING:
        yield found.name
    elif found.kind == CLASS and found.name in OBJECTS:
        yield OBJECTS[found.name]
    elif found.kind in (FUNCTION, CLASS):
        yield from (f"{path(found.name)}({arguments})" for arguments in _arguments(found, ""))
    else:
        per_object = 4 if found.owner in OTHERS else 10
        for maker in receivers(found, surface):
            if found.kind == METHOD:
                last = found.name.rpartition(".")[2]
                yield from (
                    f"{maker}.{last}({arguments})" for arguments in islice(_arguments(found, maker), per_object)
                )
            else:
                yield f"{maker}.{found.name.rpartition('.')[2]}"


def path(name: str) -> str:
    """The name as an expression: where a function hides the module of its name, by way of the module."""
    value: Any = torch
    for part in name.split(".")[1:]:
        value = getattr(value, part, None)
    module, _, last = name.rpartition(".")
    return name if value is not None else f"__import__('sys').modules[{module!r}].{last}"


def receivers(found: Found, surface: dict[str, Found]) -> Iterator[str]:
    """Expressions for the object whose method this is; a static one is called on the class."""
    if isinstance(found.value, (staticmethod, classmethod)):
        yield path(found.owner)
    if found.owner in OBJECTS:
        yield OBJECTS[found.owner]
        yield from OTHERS.get(found.owner, ())
    elif found.owner in surface:
        owner = surface[found.owner]
        makers = expressions(owner, surface) if _gives_the_object(owner.name) else _guessed(owner, surface)
        yield from islice(makers, 3)


def _gives_the_object(name: str) -> bool:
    """Whether what is written for a class is the object, and not what a call of it or an attribute of it gives."""
    written = ast.parse(WRITTEN.get(name, "made()"), mode="eval").body
    return isinstance(written, ast.Call) and not isinstance(written.func, ast.Call)


def _arguments(found: Found, maker: str) -> Iterator[str]:
    known = [p for p in variants(found) if sum(each.required for each in p) < 14] or [[]]
    seen = set()
    for parameters in known[:OVERLOADS]:
        for with_device in (True, False):
            chosen = [each for each in parameters if each.required or (with_device and _is_device(each))]
            for text in islice(_choices(chosen, maker), ATTEMPTS // 2):
                if text not in seen:
                    seen.add(text)
                    yield text


def _is_device(parameter: Parameter) -> bool:
    return parameter.name in ("device", "device_type", "device_index", "map_location") and bool(
        DEVICE_LIKE.fullmatch(parameter.name) and parameter.name not in NOT_A_REQUEST
    )


def _choices(parameters: list[Parameter], maker: str) -> Iterator[str]:
    """All first choices; then each parameter's other choices in turn, the rest as at first."""
    options = [_values(each, maker) for each in parameters]
    first = [values[0] for values in options]
    yield _written(parameters, first)
    # First arguments decide the shape of the others: try all of their values with each value of the next.
    for i in range(len(options)):
        for value in options[i][1:]:
            yield _written(parameters, [*first[:i], value, *first[i + 1 :]])
    if len(options) > 1:
        for one in options[0][1:]:
            for other in options[1][1:]:
                yield _written(parameters, [one, other, *first[2:]])


def _values(parameter: Parameter, maker: str) -> list[str]:
    values = list(BY_NAME.get(parameter.name, ()))
    for word, more in BY_TYPE:
        if word in parameter.annotation:
            typed = [value for value in more if value not in values]
            # A type that is plainly a number or a text says more than a name that fits many things.
            plain = word in ("bool", "float", "int", "str", "SymInt", "number", "Scalar", "dtype")
            values = typed + values if plain and not values else values + typed
            break
    values = values or list(ANYTHING)
    return [value.replace("{self}", maker) for value in values if maker or "{self}" not in value] or list(ANYTHING)


def _written(parameters: list[Parameter], values: list[str]) -> str:
    parts = []
    for parameter, value in zip(parameters, values, strict=True):
        by_keyword = parameter.keyword_only or not (parameter.required or parameter.positional_only)
        parts.append(f"{parameter.name}={value}" if by_keyword else value)
    return ", ".join(parts)
