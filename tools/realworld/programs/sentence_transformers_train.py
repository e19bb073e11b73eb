"""sentence-transformers: SentenceTransformer(device="cuda"), encode, fit by its trainer, semantic search."""

import json
import tempfile

import torch
from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
    losses,
    util,
)
from sentence_transformers.models import Pooling, Transformer
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

torch.manual_seed(0)
words = "a man is eating food piece of bread girl carrying baby riding horse woman playing violin two men cart".split()
vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *dict.fromkeys(words)])}
tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
folder = tempfile.mkdtemp()
PreTrainedTokenizerFast(
    tokenizer_object=tokenizer,
    pad_token="[PAD]",
    unk_token="[UNK]",
    cls_token="[CLS]",
    sep_token="[SEP]",
    mask_token="[MASK]",
).save_pretrained(folder)
sizes = dict(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64)
config = BertConfig(vocab_size=len(vocabulary), hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **sizes)
BertModel(config).save_pretrained(folder)

word_embedding_model = Transformer(folder, max_seq_length=16)
pooling_model = Pooling(word_embedding_model.get_word_embedding_dimension())
model = SentenceTransformer(modules=[word_embedding_model, pooling_model], device="cuda")

corpus = ["a man is eating food", "a man is eating a piece of bread", "two men cart", "a woman is playing violin"]
corpus_embeddings = model.encode(corpus, convert_to_tensor=True)
query = model.encode("a girl is eating bread", convert_to_tensor=True, normalize_embeddings=True)
hits = util.semantic_search(query, corpus_embeddings, top_k=2)[0]
as_numpy = model.encode(corpus, batch_size=2, show_progress_bar=False)
values = [hit["score"] for hit in hits] + as_numpy[:, 0].astype(float).tolist()

train_dataset = Dataset.from_dict(
    {
        "sentence1": [corpus[0], corpus[2], corpus[1], corpus[3]] * 2,
        "sentence2": [corpus[1], corpus[3], corpus[0], corpus[2]] * 2,
        "score": [1.0, 0.0, 1.0, 0.2] * 2,
    }
)
args = SentenceTransformerTrainingArguments(
    output_dir=tempfile.mkdtemp(),
    num_train_epochs=2,
    per_device_train_batch_size=4,
    learning_rate=1e-3,
    fp16=True,
    logging_steps=1,
    save_strategy="no",
    report_to=[],
    disable_tqdm=True,
    seed=0,
)
trainer = SentenceTransformerTrainer(
    model=model, args=args, train_dataset=train_dataset, loss=losses.CosineSimilarityLoss(model)
)
result = trainer.train()
values += [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
scores = model.similarity(model.encode(corpus), model.encode(corpus))
values += [float(value) for value in scores[0]]
devices = sorted({str(parameter.device) for parameter in model.parameters()})
print("RESULT", json.dumps({"steps": result.global_step, "devices": devices, "values": values}))
