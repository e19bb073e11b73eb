"""Fused optimizers of apex and DeepSpeed: torch's Adam with their options, and an implementation of LAMB."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torchdevice.packages.refusals import refuse_arguments

Closure = Callable[[], Any] | None
_FLOAT32 = 4  # bytes
_WHY = "the stand-in does not keep float32 copies of parameters"


class ZeroesAsAsked(torch.optim.Optimizer):
    """`set_grad_none` is an argument of the constructor. With zero gradients, momentum and weight decay still apply."""

    _set_grad_none = True

    def zero_grad(self, set_to_none: bool | None = None) -> None:
        """Resets the gradients as the constructor specified."""
        super().zero_grad(self._set_grad_none if set_to_none is None else set_to_none)


class Adam(ZeroesAsAsked, torch.optim.Adam):
    """torch's Adam. Half-precision parameters are computed in float32, and `bias_correction=False` is supported."""

    _keeps_float32 = True  # the moments of half-precision parameters

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        bias_correction: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        adam_w_mode: bool = True,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        set_grad_none: bool = True,
        capturable: bool = False,
        master_weights: bool = False,
    ) -> None:
        if amsgrad:
            raise RuntimeError("FusedAdam does not support the AMSGrad variant.")
        super().__init__(params, lr, betas, eps, weight_decay, decoupled_weight_decay=adam_w_mode)
        refuse_arguments("a fused Adam", _WHY, {"master_weights": master_weights and self._has_narrow()})
        self._set_grad_none = set_grad_none
        for group in self.param_groups:
            group["bias_correction"] = bias_correction

    def _has_narrow(self) -> bool:
        return any(each.element_size() < _FLOAT32 for group in self.param_groups for each in group["params"])

    @torch.no_grad()
    def step(self, closure: Closure = None, *args: Any, **kwargs: Any) -> Any:
        """One step. Scales, which older versions accepted here, raise an error."""
        if any(value is not None for value in (*args, *kwargs.values())):
            raise RuntimeError("the fused Adam takes no gradients or scales in step(); use amp.scale_loss")
        if all(group["bias_correction"] for group in self.param_groups) and not self._has_narrow():
            return super().step(closure)
        loss = torch.enable_grad()(closure)() if closure is not None else None
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group)
        return loss

    def _update(self, parameter: Tensor, group: dict[str, Any]) -> None:
        state, gradient = self.state[parameter], parameter.grad
        assert gradient is not None
        wide = torch.promote_types(parameter.dtype, torch.float32)
        if not state:
            kept = wide if self._keeps_float32 else parameter.dtype
            state["step"] = torch.zeros(())
            state["exp_avg"], state["exp_avg_sq"] = (torch.zeros_like(parameter, dtype=kept) for _ in range(2))
        beta1, beta2 = group["betas"]
        state["step"] += 1
        corrected, steps = group["bias_correction"], int(state["step"])
        whole, slope = parameter.to(wide), gradient.to(wide)
        if group["decoupled_weight_decay"]:
            whole = whole * (1 - group["lr"] * group["weight_decay"])
        else:
            slope = slope + group["weight_decay"] * whole
        first = state["exp_avg"].to(wide).lerp(slope, 1 - beta1)
        second = (state["exp_avg_sq"].to(wide) * beta2).addcmul(slope, slope, value=1 - beta2)
        state["exp_avg"].copy_(first)
        state["exp_avg_sq"].copy_(second)
        length = group["lr"] / (1 - beta1**steps if corrected else 1.0)
        root = (second / (1 - beta2**steps if corrected else 1.0)).sqrt() + group["eps"]
        parameter.copy_(whole.addcdiv(first, root, value=-length))


class Lamb(ZeroesAsAsked):
    """LAMB: Adam's update, scaled per parameter by the ratio of the norms of the parameter and of the update."""

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        bias_correction: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        amsgrad: bool = False,
        adam_w_mode: bool = True,
        grad_averaging: bool = True,
        set_grad_none: bool = True,
        max_grad_norm: float = 1.0,
        use_nvlamb: bool = False,
    ) -> None:
        if amsgrad:
            raise RuntimeError("FusedLAMB does not support the AMSGrad variant.")
        super().__init__(
            params,
            {
                "lr": lr,
                "bias_correction": bias_correction,
                "betas": betas,
                "eps": eps,
                "weight_decay": weight_decay,
                "grad_averaging": grad_averaging,
                "max_grad_norm": max_grad_norm,
            },
        )
        self._decoupled, self._always = adam_w_mode, use_nvlamb
        self._set_grad_none = set_grad_none

    @torch.no_grad()
    def step(self, closure: Closure = None) -> Any:
        """One step."""
        loss = torch.enable_grad()(closure)() if closure is not None else None
        pairs = [(group, each) for group in self.param_groups for each in group["params"] if each.grad is not None]
        if not pairs:
            return loss
        norm = torch.stack([each.grad.float().norm() for _, each in pairs]).norm()
        for group in self.param_groups:
            group["step"] = group.get("step", 0) + 1
        for group, parameter in pairs:
            limit = group["max_grad_norm"]
            clip = torch.clamp(norm / limit, min=1.0) if limit else torch.ones_like(norm)
            self._update(parameter, group, parameter.grad.float() / clip.to(parameter.device))
        return loss

    def _update(self, parameter: Tensor, group: dict[str, Any], gradient: Tensor) -> None:
        state, step = self.state[parameter], group["step"]
        beta1, beta2 = group["betas"]
        whole = parameter.float()
        if not state:
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(whole), torch.zeros_like(whole)
        decay = group["weight_decay"]
        if not self._decoupled:
            gradient = gradient + decay * whole
        state["exp_avg"].mul_(beta1).add_(gradient, alpha=1 - beta1 if group["grad_averaging"] else 1.0)
        state["exp_avg_sq"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        corrected = group["bias_correction"]
        first = state["exp_avg"] / (1 - beta1**step if corrected else 1.0)
        second = state["exp_avg_sq"] / (1 - beta2**step if corrected else 1.0)
        update = first / (second.sqrt() + group["eps"])
        if self._decoupled:
            update = update + decay * whole
        ratio = torch.ones((), device=whole.device)
        if decay or self._always:
            lengths = whole.norm(), update.norm()
            ratio = torch.where((lengths[0] > 0) & (lengths[1] > 0), lengths[0] / lengths[1], ratio)
        parameter.sub_((group["lr"] * ratio * update).to(parameter.dtype))
