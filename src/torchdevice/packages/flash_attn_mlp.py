"""flash_attn's linear layers and MLPs: ops.fused_dense and modules.mlp."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from torchdevice.packages.counting import counted
from torchdevice.packages.refusals import refuse_arguments

_DENSE = "flash_attn.ops.fused_dense"
_WHY = "the stand-in computes in one process"
_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu_approx": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
    "sqrelu": lambda x: F.relu(x).square(),
}


@counted(f"{_DENSE}.fused_dense_func", "linear")
def fused_dense_func(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    return_residual: bool = False,
    process_group: Any = None,
    sequence_parallel: bool = True,
) -> Any:
    """A linear layer. With `return_residual` the input is returned too."""
    refuse_arguments(f"{_DENSE}.fused_dense_func", _WHY, {"process_group": process_group})
    out = F.linear(x, weight, bias)
    return (out, x) if return_residual else out


@counted(f"{_DENSE}.FusedDense", "torch.nn.Linear")
class FusedDense(torch.nn.Linear):
    """A linear layer with its weights."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        return_residual: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(in_features, out_features, bias=bias, device=device, dtype=dtype)
        self.return_residual = return_residual

    def forward(self, x: Tensor, process_group: Any = None) -> Any:
        refuse_arguments(f"{_DENSE}.FusedDense", _WHY, {"process_group": process_group})
        return (super().forward(x), x) if self.return_residual else super().forward(x)


@counted(f"{_DENSE}.fused_mlp_func", "linear and gelu")
def fused_mlp_func(
    x: Tensor,
    weight1: Tensor,
    weight2: Tensor,
    bias1: Tensor | None = None,
    bias2: Tensor | None = None,
    activation: str = "gelu_approx",
    save_pre_act: bool = True,
    return_residual: bool = False,
    checkpoint_lvl: int = 0,
    heuristic: int = 0,
    process_group: Any = None,
    sequence_parallel: bool = True,
) -> Any:
    """Two linear layers with an activation between them: gelu_approx, relu or sqrelu."""
    refuse_arguments(f"{_DENSE}.fused_mlp_func", _WHY, {"process_group": process_group})
    out = F.linear(_ACTIVATIONS[activation](F.linear(x, weight1, bias1)), weight2, bias2)
    return (out, x) if return_residual else out


class Mlp(torch.nn.Module):
    """Two linear layers with an activation between them."""

    def __init__(
        self,
        in_features: int,
        hidden_features: int | None = None,
        out_features: int | None = None,
        activation: Callable[[Tensor], Tensor] = F.gelu,
        bias1: bool = True,
        bias2: bool = True,
        return_residual: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        where = {"device": device, "dtype": dtype}
        hidden = 4 * in_features if hidden_features is None else hidden_features
        out = in_features if out_features is None else out_features
        self.activation, self.return_residual = activation, return_residual
        self.fc1 = torch.nn.Linear(in_features, hidden, bias=bias1, **where)
        self.fc2 = torch.nn.Linear(hidden, out, bias=bias2, **where)

    def forward(self, x: Tensor) -> Any:
        """The result, and with `return_residual` x too."""
        out = self.fc2(self.activation(self.fc1(x)))
        return (out, x) if self.return_residual else out


class FusedMLP(Mlp):
    """Two linear layers with an activation between them, which is given by its name."""

    def __init__(
        self,
        in_features: int,
        hidden_features: int | None = None,
        out_features: int | None = None,
        bias1: bool = True,
        bias2: bool = True,
        activation: str = "gelu_approx",
        return_residual: bool = False,
        checkpoint_lvl: int = 0,
        heuristic: int | str = "auto",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        sizes = in_features, hidden_features, out_features
        super().__init__(*sizes, _ACTIVATIONS[activation], bias1, bias2, return_residual, device, dtype)


class GatedMlp(torch.nn.Module):
    """Two linear layers with a gate: activation(second half of fc1) · first half. The width is a multiple of 128."""

    def __init__(
        self,
        in_features: int,
        hidden_features: int | None = None,
        out_features: int | None = None,
        activation: Callable[[Tensor], Tensor] = torch.sigmoid,
        bias1: bool = True,
        bias2: bool = True,
        multiple_of: int = 128,
        return_residual: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        where = {"device": device, "dtype": dtype}
        hidden = int(8 * in_features / 3) if hidden_features is None else hidden_features
        hidden = -(-hidden // multiple_of) * multiple_of
        out = in_features if out_features is None else out_features
        self.activation, self.return_residual = activation, return_residual
        self.fc1 = torch.nn.Linear(in_features, 2 * hidden, bias=bias1, **where)
        self.fc2 = torch.nn.Linear(hidden, out, bias=bias2, **where)

    def forward(self, x: Tensor) -> Any:
        """The result, and with `return_residual` x too."""
        given = self.fc1(x)
        if self.activation in (F.sigmoid, torch.sigmoid):  # that of torch.nn.functional only calls it
            gated = F.glu(given, dim=-1)
        else:
            value, gate = given.chunk(2, dim=-1)
            gated = value * self.activation(gate)
        out = self.fc2(gated)
        return (out, x) if self.return_residual else out
