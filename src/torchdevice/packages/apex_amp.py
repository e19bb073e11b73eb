"""apex.amp: mixed precision by torch.autocast, with a dynamic loss scale as in apex.

`O1` and `O2` compute under autocast to float16 and keep weights in float32. `O3` converts the model to float16. `O0`
changes nothing.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torchdevice.packages.counting import counted
from torchdevice.packages.refusals import refuse_arguments

_LEVELS = ("O0", "O1", "O2", "O3")
_NOT_HERE = ("cast_model_type", "cast_model_outputs", "min_loss_scale", "max_loss_scale")
_WHY = "the stand-in for apex.amp casts as torch.autocast does, and the bounds of its loss scale are fixed"
_FIRST, _LARGEST, _PATIENCE = 2.0**16, 2.0**24, 2000


@dataclass
class Scale:
    """The loss scale. It is halved after gradients that are not finite, and doubled after many finite steps."""

    factor: float = _FIRST
    dynamic: bool = True
    good: int = 0

    def update(self, finite: bool) -> bool:
        """Updates the scale. True if the step is valid."""
        if not self.dynamic:
            return True
        self.good = self.good + 1 if finite else 0
        if not finite:
            self.factor = max(self.factor / 2, 1.0)
        elif self.good % _PATIENCE == 0:
            self.factor = min(self.factor * 2, _LARGEST)
        return finite


_scales: list[Scale] = []


def _listed(given: Any) -> list[Any]:
    return [] if given is None else [*given] if isinstance(given, (list, tuple)) else [given]


@counted("apex.amp.initialize", "torch.autocast")
def initialize(
    models: Any,
    optimizers: Any = None,
    enabled: bool = True,
    opt_level: str = "O1",
    loss_scale: float | str | None = None,
    num_losses: int = 1,
    **options: Any,
) -> Any:
    """Prepares models and optimizers in place and returns them."""
    refuse_arguments("apex.amp.initialize", _WHY, {name: options.get(name) for name in _NOT_HERE})
    if opt_level not in _LEVELS:
        raise RuntimeError(f"Unexpected optimization level {opt_level}. Options are {', '.join(_LEVELS)}.")
    mixed = enabled and opt_level != "O0"
    for model in _listed(models) if mixed else ():
        if opt_level == "O3":
            model.half()
        model.forward = _under_autocast(model, model.forward, opt_level)
    default = "dynamic" if mixed and opt_level != "O3" else 1.0
    wanted = default if loss_scale is None or not enabled else loss_scale
    one = Scale() if wanted == "dynamic" else Scale(float(wanted), dynamic=False)
    _scales[:] = [Scale(one.factor, one.dynamic) for _ in range(num_losses)]
    for optimizer in _listed(optimizers):
        optimizer.step = _skipping(optimizer, optimizer.step)
    return models if optimizers is None else (models, optimizers)


def _under_autocast(model: Any, forward: Callable[..., Any], level: str) -> Callable[..., Any]:
    @functools.wraps(forward)
    def call(*args: Any, **kwargs: Any) -> Any:
        device = next((parameter.device.type for parameter in model.parameters()), "cpu")
        with torch.autocast(device, torch.float16, enabled=level != "O3"):
            out = (
                forward(*_cast(args, torch.float16), **_cast(kwargs, torch.float16))
                if level == "O3"
                else forward(*args, **kwargs)
            )
        return _cast(out, torch.float32) if level == "O2" else out

    return call


def _cast(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, Tensor):
        return value.to(dtype) if value.is_floating_point() else value
    if type(value) in (list, tuple):
        return type(value)(_cast(each, dtype) for each in value)
    return {key: _cast(each, dtype) for key, each in value.items()} if type(value) is dict else value


def _skipping(optimizer: Any, step: Callable[..., Any]) -> Callable[..., Any]:
    """A step function that does nothing if the last gradients were not finite."""

    @functools.wraps(step)
    def call(*args: Any, **kwargs: Any) -> Any:
        if getattr(optimizer, "_amp_skips", False):
            optimizer._amp_skips = False
            return None
        return step(*args, **kwargs)

    return call


@contextlib.contextmanager
def scale_loss(
    loss: Any, optimizers: Any, loss_id: int = 0, model: Any = None, delay_unscale: bool = False, **options: Any
) -> Iterator[Any]:
    """Context with the scaled loss. At its end the gradients are unscaled."""
    scale = _scales[loss_id] if _scales else Scale(1.0, dynamic=False)
    parameters = [each for optimizer in _listed(optimizers) for each in master_params(optimizer)]
    before = [parameter.grad for parameter in parameters]
    if not delay_unscale:
        for parameter in parameters:
            parameter.grad = None
    yield loss.float() * scale.factor
    if delay_unscale:
        return
    finite = True
    for parameter, old in zip(parameters, before, strict=True):
        new = parameter.grad
        if new is not None:
            new.div_(scale.factor)
            finite = finite and bool(new.isfinite().all())
        parameter.grad = new if old is None else old if new is None else old.add_(new)
    if not scale.update(finite):
        for optimizer in _listed(optimizers):
            optimizer._amp_skips = True


def master_params(optimizer: Any) -> Iterator[Any]:
    """All parameters of an optimizer."""
    for group in optimizer.param_groups:
        yield from group["params"]


def state_dict(destination: Any = None) -> dict[str, Any]:
    """The scales, for a checkpoint."""
    return {
        f"loss_scaler{number}": {"loss_scale": scale.factor, "unskipped": scale.good}
        for number, scale in enumerate(_scales)
    }


def load_state_dict(state_dict: dict[str, Any]) -> None:
    """The scales of a checkpoint."""
    for scale, saved in zip(_scales, state_dict.values(), strict=False):
        scale.factor, scale.good = saved["loss_scale"], saved["unskipped"]


def half_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Marks a function for float16. It is returned unchanged, because autocast decides per operator."""
    return function


def float_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a function so that it computes in float32."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        devices = [each.device.type for each in args if isinstance(each, Tensor)]
        with torch.autocast(devices[0] if devices else "cpu", enabled=False):
            return function(*_cast(args, torch.float32), **_cast(kwargs, torch.float32))

    return call


def promote_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Marks a function for type promotion. It is returned unchanged, because torch promotes dtypes."""
    return function
