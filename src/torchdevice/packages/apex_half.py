"""apex.fp16_utils and apex.multi_tensor_apply, which older programs import in addition to amp."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from torchdevice.errors import CudaOnlyError, explain_error


class tofp16(nn.Module):  # noqa: N801 - the package's name
    """A layer that converts its input to float16."""

    def forward(self, input: Tensor) -> Tensor:
        return input.half()


def BN_convert_float(module: nn.Module) -> nn.Module:  # noqa: N802
    """Converts the weights of batch norms to float32, in place."""
    for each in module.modules():
        if isinstance(each, nn.modules.batchnorm._BatchNorm) and each.affine:
            each.float()
    return module


def network_to_half(network: nn.Module) -> nn.Module:
    """Converts a network and its input to float16, except batch norms."""
    return nn.Sequential(tofp16(), BN_convert_float(network.half()))


def prep_param_lists(model: nn.Module, flat_master: bool = False) -> tuple[list[Tensor], list[Tensor]]:
    """The trainable parameters, and copies of them in float32."""
    if flat_master:
        raise NotImplementedError("the stand-in for apex keeps a copy per parameter: call it without flat_master")
    own = [each for each in model.parameters() if each.requires_grad]
    return own, [nn.Parameter(each.detach().clone().float()) for each in own]


def model_grads_to_master_grads(
    model_params: Sequence[Tensor], master_params: Sequence[Tensor], flat_master: bool = False
) -> None:
    """Copies the gradients of the parameters to the float32 copies."""
    assert not flat_master
    for own, master in zip(model_params, master_params, strict=True):
        master.grad = None if own.grad is None else own.grad.detach().float()


def master_params_to_model_params(
    model_params: Sequence[Tensor], master_params: Sequence[Tensor], flat_master: bool = False
) -> None:
    """Copies the float32 copies to the parameters, with rounding."""
    assert not flat_master
    for own, master in zip(model_params, master_params, strict=True):
        own.data.copy_(master.data)


class MultiTensorApply:
    """Calls a function of apex's compiled module on lists of tensors. `available` is False; a call raises an error."""

    available = False

    def __init__(self, chunk_size: int) -> None:
        self.chunk_size = chunk_size

    def __call__(self, op: Any, noop_flag_buffer: Any, tensor_lists: Any, *args: Any) -> Any:
        raise CudaOnlyError(
            explain_error(
                f"multi_tensor_applier was called with {getattr(op, '__name__', op)}",
                "the stand-in for apex has no compiled module",
                "check `multi_tensor_applier.available` first, or use torch._foreach functions",
            )
        )


multi_tensor_applier = MultiTensorApply(2048 * 32)


class LARC:
    """Wraps an optimizer. The rate of each parameter depends on its norm and the norm of its gradient."""

    def __init__(
        self, optimizer: torch.optim.Optimizer, trust_coefficient: float = 0.02, clip: bool = True, eps: float = 1e-8
    ) -> None:
        self.optim, self.trust_coefficient, self.clip, self.eps = optimizer, trust_coefficient, clip, eps

    def __getattr__(self, name: str) -> Any:
        if name == "optim":  # during unpickling
            raise AttributeError(name)
        return getattr(self.optim, name)

    @torch.no_grad()
    def step(self) -> None:
        """One step. The weight decay of the optimizer is added to the gradients."""
        decays = [group.get("weight_decay", 0) for group in self.optim.param_groups]
        for group, decay in zip(self.optim.param_groups, decays, strict=True):
            group["weight_decay"] = 0
            for parameter in (each for each in group["params"] if each.grad is not None):
                length, slope = parameter.norm(), parameter.grad.norm()
                rate = self.trust_coefficient * length / (slope + length * decay + self.eps)
                rate = (rate / group["lr"]).clamp(max=1) if self.clip else rate
                scaled = (parameter.grad + decay * parameter) * rate
                parameter.grad.copy_(torch.where((length != 0) & (slope != 0), scaled, parameter.grad))
        self.optim.step()
        for group, decay in zip(self.optim.param_groups, decays, strict=True):
            group["weight_decay"] = decay
