"""flash_attn.losses.cross_entropy: cross-entropy with a logit scale, a z-loss and label smoothing."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from torchdevice.errors import CudaOnlyError, explain_error
from torchdevice.packages.counting import counted


def _losses(
    logits: Tensor, labels: Tensor, smoothing: float, scale: float, square_scale: float, ignored: int
) -> tuple[Tensor, Tensor]:
    """The loss per token including the penalty, and the penalty."""
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32)) * scale
    labels = labels.long()
    losses = F.cross_entropy(wide, labels, ignore_index=ignored, reduction="none", label_smoothing=smoothing)
    penalty = square_scale * wide.logsumexp(dim=-1).square().masked_fill(labels == ignored, 0.0)
    return losses + penalty, penalty


def _check(process_group: Any) -> None:
    if process_group is not None:
        raise CudaOnlyError(
            explain_error(
                "flash_attn's cross-entropy was called with a vocabulary that is split over processes",
                "the stand-in computes in one process",
                "gather the logits first, or use torch.distributed.tensor.parallel.loss_parallel",
            )
        )


@counted("flash_attn.ops.triton.cross_entropy.cross_entropy_loss", "cross_entropy")
def cross_entropy_loss(
    logits: Tensor,
    labels: Tensor,
    precomputed_lse: Tensor | None = None,
    label_smoothing: float = 0.0,
    logit_scale: float = 1.0,
    lse_square_scale: float = 0.0,
    ignore_index: int = -100,
    inplace_backward: bool = False,
    process_group: Any = None,
) -> tuple[Tensor, Tensor]:
    """The losses of all tokens, and the part of the z-loss in each."""
    _check(process_group)
    losses, penalty = _losses(logits, labels, label_smoothing, logit_scale, lse_square_scale, ignore_index)
    return losses, penalty.detach()


@counted("flash_attn.losses.cross_entropy.CrossEntropyLoss", "cross_entropy")
class CrossEntropyLoss(torch.nn.Module):
    """Cross-entropy as a layer."""

    def __init__(
        self,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
        logit_scale: float = 1.0,
        lse_square_scale: float = 0.0,
        inplace_backward: bool = False,
        process_group: Any = None,
        return_z_loss: bool = False,
    ) -> None:
        super().__init__()
        _check(process_group)
        self.ignore_index, self.reduction, self.label_smoothing = ignore_index, reduction, label_smoothing
        self.logit_scale, self.lse_square_scale, self.return_z_loss = logit_scale, lse_square_scale, return_z_loss

    def forward(self, input: Tensor, target: Tensor, precomputed_lse: Tensor | None = None) -> Any:
        """The loss of logits (tokens, vocabulary) and labels (tokens)."""
        given = self.label_smoothing, self.logit_scale, self.lse_square_scale, self.ignore_index
        both = _losses(input, target, *given)
        if self.reduction == "mean":
            number = (target != self.ignore_index).sum()
            both = both[0].sum() / number, both[1].sum() / number
        elif self.reduction == "sum":
            both = both[0].sum(), both[1].sum()
        return both if self.return_z_loss else both[0]
