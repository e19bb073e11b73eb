"""Calls that fail because the target is full: memory is freed and the call is tried once more (`on_oom`).

The code here runs only after an error. `answers.relief` frees memory, and says where else it is freed.
"""

from __future__ import annotations

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
        for attempt in (original, _converted_on_cpu(relief, original, path)):
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


def _converted_on_cpu(relief: Relief, original: Any, path: str) -> Any:
    """A move of a tensor from the host: converted there, then copied.

    A copy that does not block converts on the device, which needs memory for both dtypes. Every other wrapped call
    needs no memory beyond its result, and a result must be on the device that the program expects.
    """

    def convert(self: Any, *args: Any, **kwargs: Any) -> Any:
        is_move = path == "torch.Tensor.to" and relief.on_cpu and isinstance(self, RealTensor) and self.is_cpu
        device, dtype, _, memory_format = parse_to(*args, **kwargs) if is_move else (None,) * 4
        if device is None or dtype in (None, self.dtype):
            return original(self, *args, **kwargs)
        moved = original(original(self, RealDevice("cpu"), dtype), device, memory_format=memory_format)
        relief.note_on_cpu(path)
        return moved

    return convert
