"""torchmetrics: metrics moved to "cuda", a MetricCollection in a module, forward, compute, reset, merging of states."""

import json

import numpy as np
import torch
from torch import nn
from torchmetrics import MeanMetric, MetricCollection
from torchmetrics.classification import (
    MulticlassAccuracy,
    MulticlassAUROC,
    MulticlassConfusionMatrix,
    MulticlassF1Score,
)
from torchmetrics.functional import pairwise_cosine_similarity
from torchmetrics.image import PeakSignalNoiseRatio, StructuralSimilarityIndexMeasure
from torchmetrics.regression import MeanSquaredError, R2Score, SpearmanCorrCoef
from torchmetrics.wrappers import MinMaxMetric

device = torch.device("cuda")
rng = np.random.RandomState(0)
torch.manual_seed(0)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 4)
        self.train_acc = MulticlassAccuracy(num_classes=4, average="micro")
        metrics = MetricCollection([MulticlassAccuracy(num_classes=4), MulticlassF1Score(num_classes=4)])
        self.valid = metrics.clone(prefix="val_")
        self.auroc = MulticlassAUROC(num_classes=4, thresholds=None)
        self.confusion = MulticlassConfusionMatrix(num_classes=4)

    def forward(self, x):
        return self.layer(x)


model = Model().to(device)
loss_metric = MeanMetric().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
steps, values = 0, []
for epoch in range(3):
    for _ in range(4):
        x = torch.from_numpy(rng.randn(32, 8).astype(np.float32)).cuda()
        y = x[:, :4].argmax(1)
        logits = model(x)
        loss = nn.functional.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        batch_acc = model.train_acc(logits, y)
        assert batch_acc.device == logits.device
        loss_metric.update(loss.detach(), weight=len(y))
        model.valid.update(logits.softmax(1), y)
        model.auroc.update(logits.detach().softmax(1), y)
        model.confusion.update(logits, y)
        steps += 1
    computed = model.valid.compute()
    values += [value.item() for value in computed.values()]
    values += [model.train_acc.compute().item(), loss_metric.compute().item(), model.auroc.compute().item()]
    assert model.confusion.compute().cpu().numpy().sum() == 128
    for metric in (model.train_acc, model.valid, model.auroc, model.confusion, loss_metric):
        metric.reset()

pred = torch.from_numpy(rng.rand(2, 1, 24, 24).astype(np.float32)).cuda()
target = (pred * 0.9 + 0.05).clamp(0, 1)
for metric in (PeakSignalNoiseRatio(data_range=1.0), StructuralSimilarityIndexMeasure(data_range=1.0)):
    values.append(metric.to("cuda")(pred, target).item())
a = torch.from_numpy(rng.randn(40).astype(np.float32)).cuda()
for metric in (MeanSquaredError(), R2Score(), SpearmanCorrCoef(), MinMaxMetric(MeanSquaredError())):
    metric = metric.cuda()
    metric.update(a + 0.1 * a**2, a)
    computed = metric.compute()
    values += [v.item() for v in (computed.values() if isinstance(computed, dict) else [computed])]
values += pairwise_cosine_similarity(a.view(8, 5)).flatten()[:6].tolist()
devices = sorted({str(parameter.device) for parameter in model.parameters()} | {str(model.auroc.device)})
print("RESULT", json.dumps({"steps": steps, "devices": devices, "values": values}))
