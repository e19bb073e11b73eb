"""apex: normalisations, optimizers and data-parallel training, by those of torch. `apex_amp` has mixed precision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torchdevice.packages.counting import counted
from torchdevice.packages.norms import layer_norm, rms_norm
from torchdevice.packages.optimizers import Adam, Lamb, ZeroesAsAsked
from torchdevice.packages.refusals import refuse_arguments

_NORMS = "apex.normalization"
_FUNCTIONS = f"{_NORMS}.fused_layer_norm"
_WHY = "the stand-in for apex uses torch's own class, which does not support it"
Shape = int | Sequence[int]


def _shape(given: Shape) -> tuple[int, ...]:
    return (given,) if isinstance(given, int) else tuple(given)


@counted(f"{_FUNCTIONS}.fused_layer_norm_affine", "layer_norm")
def fused_layer_norm_affine(
    input: Tensor,
    weight: Tensor,
    bias: Tensor,
    normalized_shape: Shape,
    eps: float = 1e-6,
    memory_efficient: bool = False,
) -> Tensor:
    """LayerNorm with weights."""
    return layer_norm(input, weight, bias, eps, _shape(normalized_shape))


@counted(f"{_FUNCTIONS}.fused_layer_norm", "layer_norm")
def fused_layer_norm(
    input: Tensor, normalized_shape: Shape, eps: float = 1e-6, memory_efficient: bool = False
) -> Tensor:
    """LayerNorm without weights."""
    return layer_norm(input, None, None, eps, _shape(normalized_shape))


@counted(f"{_FUNCTIONS}.fused_rms_norm_affine", "rms_norm")
def fused_rms_norm_affine(
    input: Tensor, weight: Tensor, normalized_shape: Shape, eps: float = 1e-6, memory_efficient: bool = False
) -> Tensor:
    """RMSNorm with weights."""
    return rms_norm(input, weight, eps, shape=_shape(normalized_shape))


@counted(f"{_FUNCTIONS}.fused_rms_norm", "rms_norm")
def fused_rms_norm(input: Tensor, normalized_shape: Shape, eps: float = 1e-6, memory_efficient: bool = False) -> Tensor:
    """RMSNorm without weights."""
    return rms_norm(input, None, eps, shape=_shape(normalized_shape))


@counted(f"{_NORMS}.FusedLayerNorm", "torch.nn.LayerNorm")
class FusedLayerNorm(torch.nn.LayerNorm):
    """LayerNorm as a layer. The weights may have another dtype than the input."""

    def __init__(
        self,
        normalized_shape: Shape,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        memory_efficient: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(_shape(normalized_shape), eps, elementwise_affine, **options)

    def forward(self, input: Tensor) -> Tensor:
        """The normalised input, in its dtype."""
        return layer_norm(input, self.weight, self.bias, self.eps, self.normalized_shape)


@counted(f"{_NORMS}.FusedRMSNorm", "torch.nn.RMSNorm")
class FusedRMSNorm(torch.nn.RMSNorm):
    """RMSNorm as a layer. The weights may have another dtype than the input."""

    def __init__(
        self,
        normalized_shape: Shape,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        memory_efficient: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(_shape(normalized_shape), eps, elementwise_affine, **options)

    def forward(self, input: Tensor) -> Tensor:
        """The normalised input, in its dtype."""
        return rms_norm(input, self.weight, self.eps, shape=self.normalized_shape)


class MixedFusedLayerNorm(FusedLayerNorm):
    """LayerNorm as a layer. The result has the dtype of the weights."""

    def forward(self, input: Tensor) -> Tensor:
        """The normalised input, in the dtype of the weights."""
        return super().forward(input).to(self.weight.dtype)


class MixedFusedRMSNorm(FusedRMSNorm):
    """RMSNorm as a layer. The result has the dtype of the weights."""

    def forward(self, input: Tensor) -> Tensor:
        """The normalised input, in the dtype of the weights."""
        return super().forward(input).to(self.weight.dtype)


@counted("apex.optimizers.FusedAdam", "torch.optim.Adam")
class FusedAdam(Adam):
    """Adam, or AdamW."""


@counted("apex.optimizers.FusedLAMB", "LAMB written out")
class FusedLAMB(Lamb):
    """LAMB."""


@counted("apex.optimizers.FusedSGD", "torch.optim.SGD")
class FusedSGD(ZeroesAsAsked, torch.optim.SGD):
    """SGD."""

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        wd_after_momentum: bool = False,
        materialize_master_grads: bool = True,
        set_grad_none: bool = False,
    ) -> None:
        refuse_arguments("apex.optimizers.FusedSGD", _WHY, {"wd_after_momentum": wd_after_momentum})
        super().__init__(params, lr, momentum, dampening, weight_decay, nesterov)
        self._set_grad_none = set_grad_none


@counted("apex.optimizers.FusedAdagrad", "torch.optim.Adagrad")
class FusedAdagrad(ZeroesAsAsked, torch.optim.Adagrad):
    """Adagrad."""

    def __init__(
        self,
        params: Any,
        lr: float = 1e-2,
        eps: float = 1e-10,
        weight_decay: float = 0.0,
        set_grad_none: bool = True,
        adagrad_w_mode: bool = False,
    ) -> None:
        refuse_arguments("apex.optimizers.FusedAdagrad", _WHY, {"adagrad_w_mode": adagrad_w_mode})
        super().__init__(params, lr, weight_decay=weight_decay, eps=eps)
        self._set_grad_none = set_grad_none


@counted("apex.parallel.SyncBatchNorm", "torch.nn.SyncBatchNorm")
class SyncBatchNorm(torch.nn.SyncBatchNorm):
    """Batch normalisation over all processes, or over one batch if there is no process group."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Any = None,
        channel_last: bool = False,
        fuse_relu: bool = False,
    ) -> None:
        refuse_arguments("apex.parallel.SyncBatchNorm", _WHY, {"channel_last": channel_last})
        super().__init__(num_features, eps, momentum, affine, track_running_stats, process_group)
        self.fuse_relu = fuse_relu

    def forward(self, input: Tensor) -> Tensor:
        """The normalised input."""
        distributed = torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            out = super().forward(input)
        else:
            by_batch = self.training or not self.track_running_stats
            given = self.running_mean, self.running_var, self.weight, self.bias
            out = torch.nn.functional.batch_norm(input, *given, by_batch, self.momentum or 0.0, self.eps)
        return out.relu() if self.fuse_relu else out


@counted("apex.parallel.convert_syncbn_model", "torch.nn.SyncBatchNorm")
def convert_syncbn_model(module: Any, process_group: Any = None, channel_last: bool = False) -> Any:
    """Converts all batch normalisations of a model to `SyncBatchNorm`."""
    refuse_arguments("apex.parallel.convert_syncbn_model", _WHY, {"channel_last": channel_last})
    return torch.nn.SyncBatchNorm.convert_sync_batchnorm(module, process_group)


@counted("apex.parallel.DistributedDataParallel", "torch.nn.parallel.DistributedDataParallel")
class DistributedDataParallel(torch.nn.parallel.DistributedDataParallel):
    """torch's own class. apex's options for the size and order of messages are ignored; they change no result."""

    def __init__(self, module: Any, *messages: Any, gradient_average: bool = True, **more: Any) -> None:
        refuse_arguments(
            "apex.parallel.DistributedDataParallel", _WHY, {"gradient_average=False": not gradient_average}
        )
        super().__init__(module)


def create_syncbn_process_group(group_size: int) -> Any:
    """The group of processes that share batch statistics. None for all processes."""
    processes = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
    if group_size in (0, processes):
        return None
    if group_size > processes or processes % group_size:
        raise ValueError(f"{processes} processes cannot be divided into groups of {group_size}")
    group, _ = torch.distributed.new_subgroups(group_size)
    return group
