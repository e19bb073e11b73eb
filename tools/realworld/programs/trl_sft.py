"""trl: SFTTrainer on a tiny language model and a dataset in memory, fp16, with gradient checkpointing and LoRA."""

import json
import tempfile

import torch
from datasets import Dataset
from peft import LoraConfig
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

torch.manual_seed(0)
words = "the quick brown fox jumps over lazy dog and then sleeps under a tree while rain falls".split()
vocabulary = {word: i for i, word in enumerate(["<pad>", "<eos>", "<unk>", *words])}
tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", bos_token="<eos>"
)
dataset = Dataset.from_dict({"text": [" ".join(words[i % 9 : i % 9 + 7]) for i in range(32)]})
config = GPT2Config(vocab_size=len(vocabulary), n_positions=32, n_embd=32, n_layer=2, n_head=2)
config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.0
config.bos_token_id = config.eos_token_id = 1
config.pad_token_id = 0
model = GPT2LMHeadModel(config)

training_args = SFTConfig(
    output_dir=tempfile.mkdtemp(),
    max_length=16,
    per_device_train_batch_size=8,
    num_train_epochs=2,
    learning_rate=1e-2,
    fp16=True,
    bf16=False,
    gradient_checkpointing=True,
    logging_steps=1,
    save_strategy="no",
    report_to=[],
    disable_tqdm=True,
    seed=0,
)
trainer = SFTTrainer(
    model=model,
    args=training_args,
    train_dataset=dataset,
    processing_class=tokenizer,
    peft_config=LoraConfig(r=4, lora_alpha=16, lora_dropout=0.0, target_modules=["c_attn"], task_type="CAUSAL_LM"),
)
result = trainer.train()
losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
inputs = tokenizer("the quick brown", return_tensors="pt").to("cuda")
print(tokenizer.decode(trainer.model.generate(inputs["input_ids"], max_new_tokens=4, do_sample=False)[0]))
devices = sorted({str(parameter.device) for parameter in trainer.model.parameters()})
print("RESULT", json.dumps({"steps": result.global_step, "devices": devices, "values": losses}))
