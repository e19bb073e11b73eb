"""Launchers from the package index, as their users start them. The extra `realworld` has them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.distributed.harness import run

pytestmark = pytest.mark.realworld
CPU = {"TORCHDEVICE": "1", "TORCHDEVICE_TARGET": "cpu"}

ACCELERATE = """
import torch
from accelerate import Accelerator

accelerator = Accelerator()
torch.manual_seed(0)
inputs = torch.randn(32, 4)
rows = torch.utils.data.TensorDataset(inputs, inputs.sum(1, keepdim=True))
loader = torch.utils.data.DataLoader(rows, batch_size=4)
model = torch.nn.Linear(4, 1)
model, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), loader)
losses = []
for epoch in range(5):
    for x, y in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        accelerator.backward(loss)
        optimizer.step()
        losses.append(accelerator.gather(loss.detach()).mean().item())
said = [accelerator.num_processes, type(model).__name__, len(losses), losses[-1] < 0.2 * losses[0]]
accelerator.print("TRAINED", *said, accelerator.device, torch.distributed.get_backend())
accelerator.end_training()
"""

LIGHTNING = """
import lightning, torch

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, index):
        return self.layer(batch).pow(2).mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

if __name__ == "__main__":
    quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    trainer = lightning.Trainer(max_epochs=1, strategy="ddp", devices=2, **quiet)
    trainer.fit(Model(), torch.utils.data.DataLoader(torch.ones(16, 4), batch_size=2))
    if trainer.global_rank == 0:
        print("TRAINED", trainer.world_size, trainer.global_step, trainer.strategy.root_device)
"""


def test_accelerate_launch(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(ACCELERATE)
    launch = ("-m", "accelerate.commands.launch", "--num_processes", "2", "--multi_gpu")
    done = run(*launch, str(script), TORCHDEVICE_DEVICE_COUNT="2", **CPU)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "TRAINED 2 DistributedDataParallel 20 True cpu nccl" in done.stdout


@pytest.mark.parametrize(("settings", "device"), [(CPU, "cpu"), ({"TORCHDEVICE_VIRTUAL": "cuda:2"}, "cuda:0")])
def test_lightning_ddp(settings: dict[str, str], device: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(LIGHTNING)
    done = run(str(script), **settings)
    assert done.returncode == 0, done.stderr[-4000:]
    assert f"TRAINED 2 4 {device}" in done.stdout, (sys.executable, done.stdout)
