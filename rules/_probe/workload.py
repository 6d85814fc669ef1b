"""What the candidates run: the recipe's shapes with random weights and tokens, forward and backward."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from rules._packed import PackedCollator, padded_length

LAYERS = 4  # layers are alike: a deeper model is measured at this depth
DOCUMENTS = 4  # documents in a packed sequence


class Workload:
    """A model of the recipe's shape and batches for it. scale: its layers by the layers measured."""

    def __init__(self, model_config: Mapping[str, Any], recipe: Mapping[str, Any]) -> None:
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM

        from rules._training import fused_experts, lora_config

        values = dict(model_config)
        layers = values["num_hidden_layers"]
        measured = min(layers, LAYERS)
        values["num_hidden_layers"] = measured
        if values.get("layer_types"):
            values["layer_types"] = values["layer_types"][:measured]
        self.scale = layers / measured
        self.batch_size = recipe["train.batch_size"]
        self.dtype = recipe["train.dtype"]
        seed = recipe["meta.seed"]
        torch.manual_seed(seed)
        config = AutoConfig.for_model(values.pop("model_type"), **values)
        model = AutoModelForCausalLM.from_config(
            config, dtype=getattr(torch, self.dtype), attn_implementation="eager"
        )
        self.experts = bool(fused_experts(model))
        peft = lora_config({**recipe, "train.lora.alpha": 1, "train.lora.dropout": 0.0}, model)
        if peft is not None:
            from peft import get_peft_model

            model = get_peft_model(model, peft)
            for name, parameter in model.named_parameters():
                if "lora_B" in name:  # zero at the start: no gradient would reach the other half
                    torch.nn.init.normal_(parameter, std=0.02)
        self.model = model.train()
        self.rows = random_rows(
            max(recipe["autotune.micro_batch"]), recipe["data.pack.max_length"], config.vocab_size, seed
        )
        self.length = padded_length(recipe["data.pack.max_length"])

    def batch(self, micro_batch: int) -> dict[str, Any]:
        """The first sequences as tensors of (micro_batch, length)."""
        batch = PackedCollator(micro_batch, self.length, 0)(self.rows[:micro_batch])
        batch.pop("real_tokens")
        return batch

    def select(self, attention: str) -> str:
        """Make the model use an attention implementation; returns the one that it then uses."""
        base = without_adapters(self.model)
        base.set_attn_implementation(attention)
        return str(base.config._attn_implementation)

    def plain_experts(self, model: Any) -> None:
        """Let a copy of the model compute its experts one by one: products of groups have no double form."""
        if self.experts:
            without_adapters(model).set_experts_implementation("eager")


def without_adapters(model: Any) -> Any:
    """The model itself, within PEFT's or not."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def random_rows(count: int, length: int, vocab: int, seed: int) -> list[dict[str, Any]]:
    """Full sequences of a few documents each."""
    rng = random.Random(seed)
    documents = min(DOCUMENTS, length)
    rows = []
    for _ in range(count):
        ids = [rng.randrange(vocab) for _ in range(length)]
        sizes = [length // documents] * documents
        sizes[-1] += length - sum(sizes)
        rows.append({"input_ids": ids, "labels": list(ids), "seq_lengths": sizes})
    return rows


def run_step(model: Any, batch: Mapping[str, Any]) -> float:
    """Forward and backward; leaves gradients. Returns the loss, summed over tokens, by the length."""
    import torch

    model.zero_grad(set_to_none=True)
    logits = model(input_ids=batch["input_ids"], position_ids=batch["position_ids"], use_cache=False).logits
    labels = batch["labels"][:, 1:].reshape(-1)
    kept = logits[:, :-1].reshape(-1, logits.shape[-1])
    kept = kept if kept.dtype == torch.float64 else kept.float()
    loss = torch.nn.functional.cross_entropy(kept, labels, reduction="sum") / batch["labels"].shape[1]
    loss.backward()
    return float(loss.detach())
