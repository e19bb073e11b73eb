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
from torchdevice.patching.adapters import dress, parameter_names

Function = Callable[..., Any]
Applies = Callable[[], bool]


def functions_with(parameter: str) -> Iterator[str]:
    """Public functions of torch.distributed that have a parameter, by name."""
    for name, value in sorted(vars(dist).items()):
        if name.startswith("_") or type(value) is not FunctionType:
            continue
        if parameter in parameter_names(value):
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
    """A method of process groups, asked to reduce by `ReduceOp.PREMUL_SUM(factor)`: multiply, then sum.

    Methods, not the functions that people call: torch's compiler knows those by their identity.
    """
    scaled = dist.ReduceOp.RedOpType.PREMUL_SUM

    def reduce(self: Any, *args: Any, **kwargs: Any) -> Any:
        options: Any = next((each for each in (*args, *kwargs.values()) if hasattr(each, "reduceOp")), None)
        operation = getattr(options, "reduceOp", None)
        if operation is None or operation != scaled or not applies():
            return original(self, *args, **kwargs)
        *output, given = [position for position, each in enumerate(args) if each is not options]
        if output:
            args = (*args[:given], _times(args[given], operation.factor), *args[given + 1 :])
        else:  # the one argument is both
            for tensor in args[given]:
                tensor.mul_(operation.factor)
        options.reduceOp = dist.ReduceOp.SUM
        return original(self, *args, **kwargs)

    return dress(reduce, original, path)


def _times(value: Any, factor: Any) -> Any:
    return value * factor if isinstance(value, RealTensor) else [_times(each, factor) for each in value]
