"""lightning Trainer(accelerator="gpu", devices=1, precision="16-mixed"): fit, validate, checkpoint, resume, predict."""

import json

import lightning as L
import torch
from torch.utils.data import DataLoader, TensorDataset


class Regression(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
        self.losses = []

    def step(self, batch):
        x, y = batch
        return torch.nn.functional.mse_loss(self.net(x), y)

    def training_step(self, batch, index):
        loss = self.step(batch)
        self.log("train_loss", loss)
        self.losses.append(loss.item())
        return loss

    def validation_step(self, batch, index):
        self.log("val_loss", self.step(batch), prog_bar=True)

    def predict_step(self, batch, index):
        return self.net(batch[0])

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=1e-2)
        return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)]


L.seed_everything(0, verbose=False)
inputs = torch.randn(32, 8)
loader = DataLoader(TensorDataset(inputs, inputs.mean(1, keepdim=True)), batch_size=8)
options = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "default_root_dir": "."}
model = Regression()
trainer = L.Trainer(accelerator="gpu", devices=1, precision="16-mixed", max_epochs=2, gradient_clip_val=1.0, **options)
trainer.fit(model, loader, loader)
trainer.save_checkpoint("two.ckpt")
trained = [str(trainer.strategy.root_device)]

model = Regression()
trainer = L.Trainer(accelerator="gpu", devices=[0], precision="16-mixed", max_epochs=4, **options)
trainer.fit(model, loader, loader, ckpt_path="two.ckpt")
metrics = trainer.validate(model, loader, verbose=False)
predictions = trainer.predict(model, loader)
values = model.losses + [metrics[0]["val_loss"], predictions[0].float().mean().item()]
devices = sorted({*trained, str(trainer.strategy.root_device)})
print("RESULT", json.dumps({"steps": trainer.global_step, "devices": devices, "values": values}))
