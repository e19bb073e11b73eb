"""accelerate launch --num_processes 2 --multi_gpu: distributed data parallel, gathered losses."""

import json

import accelerate
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset


def main():
    accelerator = Accelerator()
    set_seed(0)
    inputs = torch.randn(64, 8)
    loader = DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=8)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    losses = []
    for epoch in range(3):
        for x, y in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            losses.append(accelerator.gather(loss.detach()).mean().item())
    assert accelerator.num_processes == 2
    devices = accelerate.utils.gather_object([str(next(model.parameters()).device)])
    if accelerator.is_main_process:
        result = {"steps": len(losses), "devices": sorted(set(devices)), "values": losses}
        print("RESULT", json.dumps(result), flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()
