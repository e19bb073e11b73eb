"""pytorch-metric-learning: triplet miner and losses on the GPU, cross-batch memory, an accuracy calculator."""

import json

import numpy as np
import torch
from pytorch_metric_learning import distances, losses, miners, reducers
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from torch import nn

device = torch.device("cuda")
torch.manual_seed(0)
rng = np.random.RandomState(0)
centres = rng.randn(4, 12)
model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 8)).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

distance = distances.CosineSimilarity()
reducer = reducers.ThresholdReducer(low=0)
loss_func = losses.TripletMarginLoss(margin=0.2, distance=distance, reducer=reducer)
mining_func = miners.TripletMarginMiner(margin=0.2, distance=distance, type_of_triplets="semihard")
memory = losses.CrossBatchMemory(losses.ContrastiveLoss(), embedding_size=8, memory_size=64).to(device)
arcface = losses.ArcFaceLoss(num_classes=4, embedding_size=8).to(device)
loss_optimizer = torch.optim.SGD(arcface.parameters(), lr=0.01)


def batch():
    labels = rng.randint(0, 4, 32)
    points = centres[labels] + 0.3 * rng.randn(32, 12)
    return torch.from_numpy(points).float().to(device), torch.from_numpy(labels).to(device)


values = []
for _ in range(6):
    data, labels = batch()
    optimizer.zero_grad()
    loss_optimizer.zero_grad()
    embeddings = model(data)
    indices_tuple = mining_func(embeddings, labels)
    loss = loss_func(embeddings, labels, indices_tuple) + memory(embeddings, labels) + 0.1 * arcface(embeddings, labels)
    loss.backward()
    optimizer.step()
    loss_optimizer.step()
    values += [loss.item(), float(mining_func.num_triplets)]

with torch.no_grad():
    data, labels = batch()
    embeddings = nn.functional.normalize(model(data))


def knn(query, k, reference, shares_datapoints):
    found = torch.cdist(query, reference).topk(k + 1, largest=False)
    return found.values[:, 1:], found.indices[:, 1:]


calculator = AccuracyCalculator(include=("precision_at_1", "r_precision"), k=10, knn_func=knn, device=device)
accuracies = calculator.get_accuracy(embeddings, labels)
values += [float(accuracies["precision_at_1"]), float(accuracies["r_precision"])]
print(accuracies)
devices = sorted({str(parameter.device) for parameter in [*model.parameters(), *arcface.parameters()]})
print("RESULT", json.dumps({"steps": 6, "devices": devices, "values": values}))
