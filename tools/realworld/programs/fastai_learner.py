"""fastai Learner on default_device(): fit_one_cycle with to_fp16, metrics, predictions, save and load."""

import json

import torch
from fastai.basics import DataLoaders, Learner, accuracy, default_device, set_seed
from fastai.callback.fp16 import to_fp16  # noqa: F401  adds the method to Learner
from fastai.callback.schedule import fit_one_cycle  # noqa: F401  the same
from fastai.data.load import DataLoader

set_seed(0)
inputs = torch.randn(64, 8)
labels = (inputs.sum(1) > 0).long()
rows = list(zip(inputs, labels))
train = DataLoader(rows, bs=16, shuffle=False, num_workers=0)
valid = DataLoader(rows[:32], bs=16, shuffle=False, num_workers=0)
dls = DataLoaders(train, valid, device=default_device())
dls.to(torch.device("cuda"))
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
learner = Learner(dls, model, loss_func=torch.nn.CrossEntropyLoss(), metrics=accuracy).to_fp16()
with learner.no_bar(), learner.no_logging():
    learner.fit_one_cycle(3, 1e-2)
values = [float(loss) for loss in learner.recorder.losses] + [float(v) for v in learner.recorder.values[-1]]
steps = len(learner.recorder.losses)
learner = learner.to_fp32()
with learner.no_bar(), learner.no_logging():
    predictions, targets = learner.get_preds()
values += predictions[:2].flatten().tolist()
learner.save("weights")
learner.load("weights")
devices = sorted({str(p.device) for p in learner.model.parameters()})
print("RESULT", json.dumps({"steps": steps, "devices": devices, "values": values}))
