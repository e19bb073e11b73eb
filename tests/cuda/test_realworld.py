"""Libraries that ask torch.cuda at import and in use, after activation on a CPU. The extra `realworld` has them."""

from __future__ import annotations

import pytest

from tests.virtual.harness import run_python

pytestmark = pytest.mark.realworld
START = "import torch, torchdevice\ntorchdevice.activate(target='cpu')\n"


def _run(code: str) -> str:
    done = run_python("-W", "ignore", "-c", START + code)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    return done.stdout


@pytest.mark.parametrize("package", ["bitsandbytes", "transformers", "accelerate", "lightning", "diffusers"])
def test_imports_after_activation(package: str) -> None:
    _run(f"import {package}")


def test_a_transformers_trainer_with_fp16(tmp_path: object) -> None:
    said = _run(
        f"""
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
config = BertConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, vocab_size=50)
rows = [dict(input_ids=torch.randint(0, 50, (8,)), labels=torch.tensor(i % 2)) for i in range(8)]
options = dict(num_train_epochs=1, per_device_train_batch_size=4, fp16=True, report_to=[], save_strategy="no")
arguments = TrainingArguments(output_dir={str(tmp_path)!r}, disable_tqdm=True, **options)
result = Trainer(model=BertForSequenceClassification(config), args=arguments, train_dataset=rows).train()
print("STEPS", result.global_step, arguments.device)
""",
    )
    assert "STEPS 2 cpu" in said


def test_accelerate_with_mixed_precision() -> None:
    said = _run(
        """
from accelerate import Accelerator
accelerator = Accelerator(mixed_precision="fp16")
model = torch.nn.Linear(4, 1)
model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
losses = []
for _ in range(5):
    optimizer.zero_grad()
    loss = model(torch.ones(2, 4, device=accelerator.device)).pow(2).mean()
    accelerator.backward(loss)
    optimizer.step()
    losses.append(loss.item())
print("LOSS", losses[-1] < losses[0], accelerator.device)
""",
    )
    assert "LOSS True" in said


def test_lightning_trains() -> None:
    said = _run(
        """
import lightning
class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, index):
        return self.layer(batch).pow(2).mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
trainer = lightning.Trainer(max_epochs=1, accelerator="auto", devices=1, **quiet)
trainer.fit(Model(), torch.utils.data.DataLoader(torch.ones(8, 4), batch_size=2))
print("STEPS", trainer.global_step)
""",
    )
    assert "STEPS 4" in said
