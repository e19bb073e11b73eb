"""Loss functions with their gradients."""

import torch
from torch import nn


def _logits(d, *shape):
    n = 1
    for each in shape:
        n *= each
    return torch.sin(torch.arange(n, device=d, dtype=torch.float32)).view(shape).requires_grad_()


def _loss(make, shape, target):
    def program(d):
        x = _logits(d, *shape)
        loss = make(d)(x, target(d))
        loss.sum().backward()
        return [loss.tolist(), x.grad.flatten()[:8].tolist()]

    return program


def _classes(d):
    return torch.tensor([0, 2, 1], device=d)


def _values(d):
    return torch.linspace(0, 1, 12, device=d).view(3, 4)


def _bits(d):
    return (torch.arange(12, device=d).view(3, 4) % 2).float()


ROWS = {
    "cross_entropy": _loss(lambda d: nn.CrossEntropyLoss(), (3, 4), _classes),
    "cross_entropy_weighted": _loss(
        lambda d: nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 0.5, 1.0], device=d)), (3, 4), _classes
    ),
    "cross_entropy_smooth": _loss(lambda d: nn.CrossEntropyLoss(label_smoothing=0.1), (3, 4), _classes),
    "cross_entropy_ignored": _loss(lambda d: nn.CrossEntropyLoss(ignore_index=2), (3, 4), _classes),
    "cross_entropy_soft": _loss(lambda d: nn.CrossEntropyLoss(), (3, 4), lambda d: _values(d).softmax(1)),
    "cross_entropy_images": _loss(
        lambda d: nn.CrossEntropyLoss(), (1, 3, 2, 2), lambda d: torch.tensor([[[0, 1], [2, 1]]], device=d)
    ),
    "nll": _loss(lambda d: lambda x, y: nn.functional.nll_loss(x.log_softmax(1), y), (3, 4), _classes),
    "mse": _loss(lambda d: nn.MSELoss(), (3, 4), _values),
    "mse_sum": _loss(lambda d: nn.MSELoss(reduction="sum"), (3, 4), _values),
    "l1_none": _loss(lambda d: nn.L1Loss(reduction="none"), (3, 4), _values),
    "smooth_l1": _loss(lambda d: nn.SmoothL1Loss(beta=0.5), (3, 4), _values),
    "huber": _loss(lambda d: nn.HuberLoss(delta=0.3), (3, 4), _values),
    "bce": _loss(lambda d: lambda x, y: nn.functional.binary_cross_entropy(x.sigmoid(), y), (3, 4), _bits),
    "bce_logits": _loss(
        lambda d: nn.BCEWithLogitsLoss(pos_weight=torch.tensor([1.0, 2.0, 3.0, 4.0], device=d)), (3, 4), _bits
    ),
    "kl_div": _loss(
        lambda d: lambda x, y: nn.functional.kl_div(x.log_softmax(1), y.softmax(1), reduction="batchmean"),
        (3, 4),
        _values,
    ),
    "poisson_nll": _loss(lambda d: nn.PoissonNLLLoss(), (3, 4), _values),
    "gaussian_nll": _loss(lambda d: lambda x, y: nn.functional.gaussian_nll_loss(x, y, y + 1), (3, 4), _values),
    "soft_margin": _loss(lambda d: nn.SoftMarginLoss(), (3, 4), lambda d: _bits(d) * 2 - 1),
    "hinge_embedding": _loss(lambda d: nn.HingeEmbeddingLoss(), (3, 4), lambda d: _bits(d) * 2 - 1),
    "multi_margin": _loss(lambda d: nn.MultiMarginLoss(), (3, 4), _classes),
    "multilabel_margin": _loss(
        lambda d: nn.MultiLabelMarginLoss(), (1, 4), lambda d: torch.tensor([[3, 0, -1, 1]], device=d)
    ),
    "multilabel_soft_margin": _loss(lambda d: nn.MultiLabelSoftMarginLoss(), (3, 4), _bits),
    "margin_ranking": _loss(
        lambda d: lambda x, y: nn.functional.margin_ranking_loss(x, y, torch.ones_like(y), 0.1), (3, 4), _values
    ),
    "cosine_embedding": _loss(
        lambda d: lambda x, y: nn.functional.cosine_embedding_loss(x, y, torch.tensor([1, -1, 1], device=d)),
        (3, 4),
        _values,
    ),
    "triplet": _loss(lambda d: lambda x, y: nn.functional.triplet_margin_loss(x, y, y.flip(0)), (3, 4), _values),
    "adaptive_log_softmax_parts": lambda d: list(
        nn.AdaptiveLogSoftmaxWithLoss(4, 6, [2, 4]).to(d)(_logits(d, 3, 4), _classes(d)).output.shape
    ),
}


def ctc(d):
    x = _logits(d, 6, 2, 4)
    targets = torch.tensor([[1, 2], [3, 1]], device=d)
    loss = nn.functional.ctc_loss(
        x.log_softmax(2), targets, torch.tensor([6, 5], device=d), torch.tensor([2, 1], device=d)
    )
    loss.backward()
    return [loss.item(), x.grad.flatten()[:6].tolist()]


def ctc_with_lengths_of_the_host(d):
    x = _logits(d, 6, 2, 4)
    loss = nn.functional.ctc_loss(x.log_softmax(2), torch.tensor([[1, 2], [3, 1]], device=d), (6, 5), (2, 1))
    return loss.item()


def wrong_classes_are_refused(d):
    try:
        nn.functional.cross_entropy(_logits(d, 3, 4), torch.tensor([0.5, 1.0, 2.0], device=d))
    except RuntimeError as error:
        return type(error).__name__


def wrong_shapes_warn_and_broadcast(d):
    return nn.functional.mse_loss(_logits(d, 2, 1), torch.zeros(2, 1, device=d)).item()
