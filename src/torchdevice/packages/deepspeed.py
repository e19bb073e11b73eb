"""deepspeed.ops.adam: DeepSpeed's Adam, by torch's Adam. DeepSpeed's distributed training is not supported."""

from __future__ import annotations

from typing import Any

from torchdevice.packages.counting import counted
from torchdevice.packages.optimizers import Adam


@counted("deepspeed.ops.adam.FusedAdam", "torch.optim.Adam")
class FusedAdam(Adam):
    """Adam or AdamW. Its moments have the dtype of the parameters."""

    _keeps_float32 = False


@counted("deepspeed.ops.adam.DeepSpeedCPUAdam", "torch.optim.Adam")
class DeepSpeedCPUAdam(Adam):
    """Adam or AdamW under the name of DeepSpeed's CPU version. Its moments are in float32 by default."""

    def __init__(
        self,
        model_params: Any,
        lr: float = 1e-3,
        bias_correction: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        adamw_mode: bool = True,
        fp32_optimizer_states: bool = True,
    ) -> None:
        super().__init__(model_params, lr, bias_correction, betas, eps, adamw_mode, weight_decay, amsgrad)
        self._keeps_float32 = fp32_optimizer_states
