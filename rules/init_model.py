"""Makes a new Qwen3 or Qwen3-MoE with random weights, and a tokenizer trained on the corpus.

The same bytes in every process: weights depend on meta.seed and the sizes, the tokenizer on the corpus.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mxt.rule import Attributes, Config, Labels, Resources, Run
from rules._refusals import on_gpu

if TYPE_CHECKING:
    from mxt.graph.target import Target

VERSION = 1
ESTIMATE = "_estimate.model"
KEYED = (
    "meta.seed",
    "hardware.gpus",
    "hardware.env",
    "model.init.vocab_size",
    "model.init.hidden_size",
    "model.init.intermediate_size",
    "model.init.num_hidden_layers",
    "model.init.num_attention_heads",
    "model.init.num_key_value_heads",
    "model.init.head_dim",
    "model.init.max_position_embeddings",
    "model.init.rope_theta",
    "model.init.tie_word_embeddings",
    "model.init.experts.count",
    "model.init.experts.per_token",
    "model.init.experts.intermediate_size",
)

# ChatML, as Qwen3 has it without thinking and tools; what is learned stands between {% generation %}
CHAT_TEMPLATE = (
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message.role + '\\n' }}"
    "{%- if message.role == 'assistant' %}"
    "{% generation %}{{- message.content + '<|im_end|>' }}{% endgeneration %}{{- '\\n' }}"
    "{%- else %}"
    "{{- message.content + '<|im_end|>\\n' }}"
    "{%- endif %}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)


class Attrs(Attributes):
    """corpus: the plain-text files that the tokenizer is trained on."""

    config: Config
    corpus: Labels


def actions(target: Target) -> None:
    """One action."""
    target.action(
        run=init_model,
        mnemonic="InitModel",
        inputs={"corpus": list(target.attrs.corpus)},
        outputs={"model": "model/"},
        resources=Resources(cpus=1, memory_mb=1500, gpus=target.config["hardware.gpus"]),
        environment=target.config["hardware.env"],
        refuse=on_gpu("making a model", target.config),
    )


def init_model(run: Run) -> None:
    """Write a folder as save_pretrained does: weights, configurations, tokenizer, chat template."""
    from rules._runtime import prepare

    prepare(run, deterministic=True)
    import torch
    from transformers import AutoModelForCausalLM

    names = [k for k in run.config if k.startswith("model.init.") and ".experts." not in k]
    size = {k.removeprefix("model.init."): run.config[k] for k in names}
    run.report(note="training the tokenizer")
    tokenizer = train_tokenizer(run, size["vocab_size"], size["max_position_embeddings"])
    run.report(note="drawing the weights")
    torch.manual_seed(run.config["meta.seed"])
    model = AutoModelForCausalLM.from_config(configuration(run, size, tokenizer))
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    folder: Path = run.outputs["model"]
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    weights = sum(p.numel() for p in model.parameters())
    run.report(note=f"{weights:,} weights")
    from rules._panels import facts

    shown = (
        ("weights", weights),
        ("vocabulary", size["vocab_size"]),
        ("layers", size["num_hidden_layers"]),
        ("hidden size", size["hidden_size"]),
        ("experts a layer", run.config["model.init.experts.count"]),
        ("of these for each token", run.config["model.init.experts.per_token"]),
    )
    facts(run, "Model", "A new model", shown)


def configuration(run: Run, size: dict[str, Any], tokenizer: Any) -> Any:
    """Of a Qwen3, or of a Qwen3-MoE where the recipe has experts: then every layer is a mixture."""
    from transformers import Qwen3Config, Qwen3MoeConfig

    common = {
        **size,
        "rope_parameters": {"rope_type": "default", "rope_theta": size["rope_theta"]},
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    del common["rope_theta"]
    count = run.config["model.init.experts.count"]
    if count is None:
        return Qwen3Config(**common)
    return Qwen3MoeConfig(
        **common,
        num_experts=count,
        num_experts_per_tok=run.config["model.init.experts.per_token"],
        moe_intermediate_size=run.config["model.init.experts.intermediate_size"],
        norm_topk_prob=True,  # as the published Qwen3-MoE models
    )


def train_tokenizer(run: Run, vocab_size: int, max_length: int) -> Any:
    """A byte-level BPE with ChatML's special tokens. Raises StageError where the corpus is too small."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    from rules._corpus import END_OF_TEXT, SPECIAL_TOKENS, TURN_END, documents

    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )

    special = re.compile("|".join(map(re.escape, SPECIAL_TOKENS)))

    def plain() -> Iterator[str]:
        for text in documents(run.inputs["corpus"]):
            yield special.sub("\n", text)  # those are tokens of their own already

    raw.train_from_iterator(plain(), trainer)
    if raw.get_vocab_size() != vocab_size:
        raise run.fail(
            f"the corpus gives {raw.get_vocab_size()} tokens where model.init.vocab_size is {vocab_size}",
            hint="lower vocab_size, or add text to the corpus",
        )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw, eos_token=TURN_END, pad_token=END_OF_TEXT, model_max_length=max_length
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer
