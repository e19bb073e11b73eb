"""apex.amp: mixed precision by torch.autocast, with a scale for the loss that adapts as apex's does.

`O1` and `O2` compute under autocast to float16 and keep weights in float32; `O3` makes the model float16; `O0` changes
nothing.
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
_WHY = "the stand-in for apex.amp casts as torch.autocast does, and its scale of the loss has fixed bounds"
_FIRST, _LARGEST, _PATIENCE = 2.0**16, 2.0**24, 2000


@dataclass
class Scale:
    """The factor on the loss: halved by gradients that are not finite, doubled after many steps without."""

    factor: float = _FIRST
    dynamic: bool = True
    good: int = 0

    def update(self, finite: bool) -> bool:
        """Whether the step is to be taken."""
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
    """Prepare models and optimizers; they are changed in place and returned."""
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
    """A step that is left out where the last gradients were not finite."""

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
    """The loss times the scale; afterwards the gradients without it."""
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
    """A function of a program that is to compute in float16: autocast decides by operator, so it stays as it is."""
    return function


def float_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of a program that is to compute in float32."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        devices = [each.device.type for each in args if isinstance(each, Tensor)]
        with torch.autocast(devices[0] if devices else "cpu", enabled=False):
            return function(*_cast(args, torch.float32), **_cast(kwargs, torch.float32))

    return call


def promote_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of a program that takes the widest of its dtypes: torch promotes by itself."""
    return function
