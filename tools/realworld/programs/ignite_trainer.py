"""pytorch-ignite: supervised trainer on "cuda" with amp_mode="amp" and a scaler, metrics, checkpoints."""

import json

import torch
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from ignite.handlers import Checkpoint, DiskSaver
from ignite.metrics import Accuracy, Loss
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
device = "cuda"
inputs = torch.randn(64, 8)
labels = (inputs.sum(1) > 0).long()
loader = DataLoader(TensorDataset(inputs, labels), batch_size=16, pin_memory=True)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
criterion = torch.nn.CrossEntropyLoss()
trainer = create_supervised_trainer(
    model, optimizer, criterion, device=device, non_blocking=True, amp_mode="amp", scaler=True
)
metrics = {"accuracy": Accuracy(), "nll": Loss(criterion)}
evaluator = create_supervised_evaluator(model, metrics=metrics, device=device, non_blocking=True)
values = []


@trainer.on(Events.ITERATION_COMPLETED)
def keep(engine):
    values.append(engine.state.output)


@trainer.on(Events.EPOCH_COMPLETED)
def evaluate(engine):
    evaluator.run(loader)
    values.extend([evaluator.state.metrics["accuracy"], evaluator.state.metrics["nll"]])


saver = DiskSaver("ignite", require_empty=False, create_dir=True)
trainer.add_event_handler(
    Events.EPOCH_COMPLETED, Checkpoint({"model": model, "optimizer": optimizer}, saver, n_saved=1)
)
state = trainer.run(loader, max_epochs=3)
devices = sorted({str(p.device) for p in model.parameters()})
print("RESULT", json.dumps({"steps": state.iteration, "devices": devices, "values": values}))
