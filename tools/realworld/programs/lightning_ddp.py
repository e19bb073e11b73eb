"""lightning Trainer(accelerator="gpu", devices=2, strategy="ddp"): two processes, synchronised metrics."""

import json

import lightning as L
import torch
from torch.utils.data import DataLoader, TensorDataset


class Regression(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.losses = []

    def training_step(self, batch, index):
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.layer(x), y)
        self.log("loss", loss, sync_dist=True, on_step=False, on_epoch=True)
        return loss

    def on_train_epoch_end(self):
        self.losses.append(self.trainer.callback_metrics["loss"].item())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


if __name__ == "__main__":
    L.seed_everything(0, verbose=False)
    inputs = torch.randn(32, 4, generator=torch.Generator().manual_seed(1))
    loader = DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=4, shuffle=False)
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    trainer = L.Trainer(accelerator="gpu", devices=2, strategy="ddp", max_epochs=3, **quiet)
    model = Regression()
    trainer.fit(model, loader)
    assert trainer.world_size == 2
    if trainer.is_global_zero:
        devices = [str(trainer.strategy.root_device)]
        print(
            "RESULT", json.dumps({"steps": trainer.global_step, "devices": devices, "values": model.losses}), flush=True
        )
