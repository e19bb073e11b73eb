"""Trainer(bf16=True): training with evaluation, checkpoints, and a second run that resumes from the last one."""

import json

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed
from transformers.trainer_utils import get_last_checkpoint


class Rows(torch.utils.data.Dataset):
    def __init__(self, size):
        generator = torch.Generator().manual_seed(1)
        self.rows = torch.randint(0, 64, (size, 16), generator=generator)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return {"input_ids": self.rows[index], "labels": self.rows[index]}


set_seed(0)
config = GPT2Config(
    vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0
)


def make_trainer(steps):
    arguments = TrainingArguments(
        output_dir="checkpoints",
        max_steps=steps,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        learning_rate=1e-3,
        bf16=True,
        save_steps=4,
        eval_strategy="steps",
        eval_steps=4,
        logging_steps=1,
        report_to=[],
        disable_tqdm=True,
        dataloader_pin_memory=True,
    )
    set_seed(0)
    return Trainer(model=GPT2LMHeadModel(config), args=arguments, train_dataset=Rows(64), eval_dataset=Rows(8))


first = make_trainer(4)
first.train()
assert get_last_checkpoint("checkpoints").endswith("checkpoint-4")

second = make_trainer(8)
second.train(resume_from_checkpoint=True)
history = second.state.log_history
losses = [entry["loss"] for entry in history if "loss" in entry]
losses += [entry["eval_loss"] for entry in history if "eval_loss" in entry]
devices = sorted({str(p.device) for p in second.model.parameters()})
print("RESULT", json.dumps({"steps": second.state.global_step, "devices": devices, "values": losses}))
