"""Metrics gathered on both sides: out.cpu(), .numpy(), tolist, a confusion matrix on the CPU, scikit-learn's scores."""

import json
from collections import defaultdict

import numpy as np
import torch
from sklearn.metrics import accuracy_score, confusion_matrix, f1_score, roc_auc_score
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
rng = np.random.RandomState(0)
features = StandardScaler().fit_transform(rng.randn(256, 12))
labels = (features[:, :4].sum(1) > 0).astype(int) + (features[:, 4:8].sum(1) > 1).astype(int)
dataset = TensorDataset(torch.from_numpy(features).float(), torch.from_numpy(labels))
train_loader = DataLoader(dataset, batch_size=32, shuffle=True, generator=torch.Generator().manual_seed(0))
valid_loader = DataLoader(dataset, batch_size=64)

model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 3)).cuda()
criterion = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 1.0, 2.0]).cuda())
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

history, steps = defaultdict(list), 0
for epoch in range(4):
    model.train()
    running_loss, running_corrects, per_class = 0.0, 0, torch.zeros(3)
    for inputs, targets in train_loader:
        outputs = model(inputs.cuda())
        loss = criterion(outputs, targets.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        _, preds = torch.max(outputs, 1)
        running_loss += loss.item() * inputs.size(0)
        running_corrects += torch.sum(preds.cpu() == targets.data)
        per_class += torch.bincount(preds.detach().cpu(), minlength=3).float()
        steps += 1
    history["loss"].append(running_loss / len(dataset))
    history["accuracy"].append((running_corrects.double() / len(dataset)).item())
    history["predicted"].append((per_class / per_class.sum()).numpy())

    model.eval()
    probabilities, truth, predictions, embeddings = [], [], [], []
    confusion = torch.zeros(3, 3, dtype=torch.int64)
    total = torch.tensor(0.0)
    with torch.no_grad():
        for inputs, targets in valid_loader:
            out = model(inputs.to("cuda", non_blocking=True))
            total += criterion(out, targets.to("cuda")).cpu() * len(targets)
            probabilities.append(out.softmax(1).cpu())
            truth += targets.tolist()
            predictions.extend(out.argmax(1).cpu().numpy())
            embeddings.append(model[:2](inputs.cuda()).detach().cpu().numpy())
            for t, p in zip(targets.view(-1), out.argmax(1).view(-1), strict=True):
                confusion[t.long().cpu(), p.long().cpu()] += 1
    scores = torch.cat(probabilities).numpy()
    assert (confusion.numpy() == confusion_matrix(truth, predictions)).all()
    history["auc"].append(roc_auc_score(truth, scores, multi_class="ovr"))
    history["f1"].append(f1_score(truth, predictions, average="macro"))
    history["valid"].append(total.item() / len(dataset))
    assert accuracy_score(truth, np.argmax(scores, axis=1)) == (confusion.diag().sum() / confusion.sum()).item()
    print(f"epoch {epoch}: AUC {history['auc'][-1]:.3f}, F1 {history['f1'][-1]:.3f}")

embedded = np.concatenate(embeddings)
best = torch.argsort(torch.from_numpy(scores.max(1)), descending=True)[:4]
hardest = features[np.asarray(best)].sum()
values = [float(value) for name in ("loss", "accuracy", "auc", "f1", "valid") for value in history[name]]
values += [float(embedded.mean()), float(embedded.std()), float(np.stack(history["predicted"]).max()), float(hardest)]
devices = sorted({str(parameter.device) for parameter in model.parameters()})
print("RESULT", json.dumps({"steps": steps, "devices": devices, "values": values}))
