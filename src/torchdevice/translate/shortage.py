"""Calls that fail because the target is full: memory is freed and the call is tried once more (`on_oom`).

The code here runs only after an error. `answers.relief` frees memory, and says where else it is freed.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from torchdevice._torch.core import RealDevice, RealTensor, parse_to
from torchdevice.translate.translator import Relief, Translator

_TRIED = "_torchdevice_tried"  # a wrapped call inside another: the outer one does not try again


def tried_again(
    error: RuntimeError, original: Any, args: tuple[Any, ...], kwargs: dict[str, Any], path: str, translator: Translator
) -> Any:
    """The result of a second attempt. Raises the error, as CUDA would, if it has another cause or remains."""
    relief = translator.situation.relief
    if relief is not None and translator.in_force and not vars(error).get(_TRIED) and relief.applies(error):
        relief.free(path)
        attempts = [original]
        if relief.on_cpu and _converts(path, args, kwargs):
            attempts.append(partial(_convert_on_cpu, relief, original, path))
        for attempt in attempts:
            try:
                return attempt(*args, **kwargs)
            except RuntimeError as again:
                if not relief.applies(again):
                    raise
    failure_of = translator.situation.failure_of
    failure = failure_of(error) if failure_of is not None else None
    for raised in (error, failure):
        if raised is not None:
            vars(raised)[_TRIED] = True
    if failure is None:
        raise error
    raise failure from error


def _converts(path: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call moves a tensor from the host and changes its dtype.

    Such a move that does not block converts on the device, which needs memory for both dtypes. Every other wrapped call
    needs no memory beyond its result, and a result must be on the device that the program expects.
    """
    if path != "torch.Tensor.to" or not args or not isinstance(args[0], RealTensor) or not args[0].is_cpu:
        return False
    device, dtype, _, _ = parse_to(*args[1:], **kwargs)
    return device is not None and dtype not in (None, args[0].dtype)


def _convert_on_cpu(relief: Relief, original: Any, path: str, tensor: Any, *args: Any, **kwargs: Any) -> Any:
    device, dtype, _, memory_format = parse_to(*args, **kwargs)
    moved = original(original(tensor, RealDevice("cpu"), dtype), device, memory_format=memory_format)
    relief.note_on_cpu(path)
    return moved
