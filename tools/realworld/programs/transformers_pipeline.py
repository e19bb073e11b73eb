"""pipeline(device=0) for classification of a list in batches, pipeline(device="cuda") for masks and for text."""

import json

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
    pipeline,
    set_seed,
)

set_seed(0)

words = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "the",
    "film",
    "was",
    "good",
    "bad",
    "and",
    "long",
    "i",
    "saw",
    "it",
]
backend = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
backend.pre_tokenizer = Whitespace()
special = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}
tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, **special)

sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
bert = BertConfig(vocab_size=len(words), max_position_embeddings=32, **sizes)
gpt = GPT2Config(vocab_size=len(words), n_positions=64, n_embd=32, n_layer=2, n_head=2, bos_token_id=2, eos_token_id=3)

classifier = BertForSequenceClassification(bert).eval()
masked = BertForMaskedLM(bert).eval()
writer = GPT2LMHeadModel(gpt).eval()

classify = pipeline("text-classification", model=classifier, tokenizer=tokenizer, device=0)
said = classify(["the film was good", "the film was bad and long", "i saw it"], batch_size=2, top_k=None)
scores = [label["score"] for row in said for label in sorted(row, key=lambda label: label["label"])]

fill = pipeline("fill-mask", model=masked, tokenizer=tokenizer, device="cuda")
scores += [guess["score"] for guess in fill("the [MASK] was good", top_k=3)]

write = pipeline("text-generation", model=writer, tokenizer=tokenizer, device="cuda")
text = write("the film", max_new_tokens=8, do_sample=False)[0]["generated_text"]
scores += [float(token) for token in tokenizer(text)["input_ids"]]

features = pipeline("feature-extraction", model=masked.bert, tokenizer=tokenizer, device=torch.device("cuda"))
scores += [value for row in features("it was long")[0] for value in row[:2]]

devices = sorted({str(p.device) for pipe in (classify, fill, write, features) for p in pipe.model.parameters()})
print("RESULT", json.dumps({"steps": 4, "devices": devices, "values": scores}))
