"""A Qwen3 of a few thousand weights, its tokenizer and packed rows, for tests that really train."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

WORDS = ["the", "cat", "dog", "sat", "ran", "on", "under", "mat", "tree", "big", "small", "red", "blue"]
WORDS += ["and", "or", "not", "is", "was", "hello", "world", "one", "two", "three"]
TEMPLATE = (
    "{%- for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}"
    "{%- if m.role == 'assistant' %}"
    "{% generation %}{{ m.content + '<|im_end|>' }}{% endgeneration %}{{ '\n' }}"
    "{%- else %}{{ m.content + '<|im_end|>\n' }}{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{%- endif %}"
)


def sentence(rng: random.Random, words: int) -> str:
    return " ".join(rng.choices(WORDS, k=words))


def make_model(
    folder: Path, *, layers: int = 2, hidden: int = 64, seed: int = 0, experts: int | None = None
) -> Path:
    """A model folder with random weights, float32, as save_pretrained writes it. experts: in each layer."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import (
        AutoModelForCausalLM,
        PreTrainedTokenizerFast,
        Qwen3Config,
        Qwen3MoeConfig,
    )

    rng = random.Random(0)
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    raw.train_from_iterator(
        [sentence(rng, 20) for _ in range(200)],
        trainers.BpeTrainer(
            vocab_size=384,
            special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw, eos_token="<|im_end|>", pad_token="<|endoftext|>", model_max_length=512
    )
    tokenizer.chat_template = TEMPLATE
    torch.manual_seed(seed)
    mixture: dict[str, Any] = {}
    if experts:
        mixture = {"num_experts": experts, "num_experts_per_tok": 2, "moe_intermediate_size": hidden // 2}
    config = (Qwen3MoeConfig if experts else Qwen3Config)(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=512,
        tie_word_embeddings=False,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        **mixture,
    )
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_packed(path: Path, rows: int, *, length: int = 64, vocab: int = 300, seed: int = 1) -> Path:
    """Packed rows of random documents, of different lengths, the first tokens of each masked."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = random.Random(seed)
    table: dict[str, list[Any]] = {"input_ids": [], "labels": [], "seq_lengths": []}
    for _ in range(rows):
        sizes: list[int] = []
        while sum(sizes) < length - 20:
            sizes.append(rng.randrange(6, 20))
        ids = [rng.randrange(3, vocab) for _ in range(sum(sizes))]
        labels = [i for size in sizes for i in [-100] * 3 + [0] * (size - 3)]
        table["input_ids"].append(ids)
        table["labels"].append([-100 if mark else token for mark, token in zip(labels, ids, strict=True)])
        table["seq_lengths"].append(sizes)
    types = pa.list_(pa.int32())
    pq.write_table(pa.table({k: pa.array(v, types) for k, v in table.items()}), path)
    return path


TRAIN_CONFIG: dict[str, Any] = {
    "meta.seed": 7,
    "data.pack.max_length": 64,
    "train.method": "sft",
    "train.lora.r": 4,
    "train.lora.alpha": 8,
    "train.lora.dropout": 0.1,
    "train.lora.targets": ["q_proj", "v_proj", "down_proj"],
    "train.lr": 1e-2,
    "train.epochs": None,
    "train.max_steps": 12,
    "train.batch_size": 4,
    "train.optimizer": "adamw",
    "train.betas": [0.9, 0.95],
    "train.weight_decay": 0.0,
    "train.scheduler": "cosine",
    "train.warmup_ratio": 0.1,
    "train.decay_ratio": None,
    "train.max_grad_norm": 1.0,
    "train.determinism": "strict",
    "train.dtype": "float32",
}
TRAIN_UNKEYED: dict[str, Any] = {
    "meta.description": "a test",
    "hardware.price_per_hour": 2.0,
    "train.logging_steps": 5,
    "train.checkpoint_steps": 3,
}
PLATFORM: dict[str, Any] = {"name": "cpu", "arch": "x86_64", "threads": 1}
DECISIONS: dict[str, Any] = {
    "attention": "sdpa",
    "compile": "none",
    "micro_batch": 2,
    "gradient_accumulation": 2,
}


def full(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration of full training: an absent section is None in each field."""
    return {k: None if k.startswith("train.lora.") else v for k, v in config.items()}
