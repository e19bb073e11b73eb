"""What NCCL has and gloo lacks in the functions of torch.distributed; what it lacks in operators is `collectives`.

Each wrapper asks `applies` whether gloo stands for NCCL at the moment: translation says so while it is in force, a
virtual device always.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import torch.distributed as dist

from torchdevice.compat import RealTensor
from torchdevice.patching.adapters import dress

Function = Callable[..., Any]
Applies = Callable[[], bool]


def functions_with(parameter: str) -> Iterator[str]:
    """Public functions of torch.distributed that have a parameter, by name."""
    for name, value in sorted(vars(dist).items()):
        if (
            not name.startswith("_")
            and type(value) is FunctionType
            and parameter in inspect.signature(value).parameters
        ):
            yield name


def coalescing(original: Function, path: str, applies: Applies) -> Function:
    """A device here means "let the backend coalesce", which gloo does not: torch's own coalescing remains."""
    signature = inspect.signature(original)

    def manager(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        if applies():
            given.arguments.pop("device", None)
        return original(*given.args, **given.kwargs)

    return dress(manager, original, path)


def splitting(original: Function, path: str, applies: Applies) -> Function:
    """`split_group`: gloo has nothing to split, so the part that this process belongs to is made anew."""
    signature = inspect.signature(original)

    def split_group(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        if not applies():
            return original(*args, **kwargs)
        parent = given.get("parent_pg") or dist.group.WORLD
        ranks = dist.get_process_group_ranks(parent)
        mine = dist.get_rank(parent)
        for part in given.get("split_ranks") or ():
            if mine in part:
                members = [ranks[rank] for rank in sorted(part)]
                options = {name: given[name] for name in ("timeout", "group_desc") if given.get(name) is not None}
                return dist.new_group(members, use_local_synchronization=True, **options)
        return None

    return dress(split_group, original, path)


def premultiplied(original: Function, path: str, applies: Applies) -> Function:
    """A reduction by `ReduceOp.PREMUL_SUM(factor)`, which NCCL alone has: multiply, then sum."""
    signature = inspect.signature(original)
    scaled = dist.ReduceOp.RedOpType.PREMUL_SUM

    def reduce(*args: Any, **kwargs: Any) -> Any:
        # `ReduceOp.SUM` and its like are members of an enumeration; only one with a factor is an object of the class.
        operation = next((each for each in (*args, *kwargs.values()) if type(each) is dist.ReduceOp), None)
        if operation is None or operation.op != scaled or not applies():
            return original(*args, **kwargs)
        given = signature.bind(*args, **kwargs)
        inputs = [name for name in given.arguments if name.startswith("input")]
        for name in inputs:
            given.arguments[name] = _times(given.arguments[name], operation.factor)
        if not inputs:  # the first argument is both
            _scale(next(iter(given.arguments.values())), operation.factor)
        given.arguments["op"] = dist.ReduceOp.SUM
        return original(*given.args, **given.kwargs)

    return dress(reduce, original, path)


def _times(value: Any, factor: Any) -> Any:
    return value * factor if isinstance(value, RealTensor) else [_times(each, factor) for each in value]


def _scale(value: Any, factor: Any) -> None:
    for tensor in [value] if isinstance(value, RealTensor) else value:
        tensor.mul_(factor)
