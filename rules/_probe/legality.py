"""Says what cannot run before anything is built or compiled: divisibility, tools, memory."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from typing import Any

from rules._probe.candidates import Candidate

ATTENTION = ("sdpa", "eager")  # what a CPU has
USABLE = 0.8  # part of the memory that a step may fill
SAVED_VECTORS = (
    9  # hidden-size vectors a token and layer keep for the backward pass; 8B on a GPU: about 25 GB a 4096
)


def why_illegal(
    candidate: Candidate, shape: Mapping[str, Any], memory_bytes: int, compiler: str | None
) -> str | None:
    """The reason why a candidate cannot run, or None. compiler: the C++ compiler found on PATH."""
    if candidate.attention not in ATTENTION:
        return f"attention '{candidate.attention}' does not exist on a CPU"
    if shape["batch_size"] % candidate.micro_batch:
        return f"micro_batch {candidate.micro_batch} does not divide batch_size {shape['batch_size']}"
    if candidate.compile == "inductor" and compiler is None:
        return "inductor needs a C++ compiler, and there is no g++ on PATH"
    needed = memory_needed(candidate, shape)
    if needed > USABLE * memory_bytes:
        return f"a step needs about {needed >> 20} MiB, more than {USABLE:.0%} of {memory_bytes >> 20} MiB"
    return None


def memory_needed(candidate: Candidate, shape: Mapping[str, Any]) -> int:
    """Bytes of weights, gradients, optimizer state and one micro-batch's activations; an estimate."""
    model = shape["model"]
    size = {"float32": 4, "bfloat16": 2}[shape["dtype"]]
    hidden, layers, heads = model["hidden_size"], model["num_hidden_layers"], model["num_attention_heads"]
    inner, vocab = model["intermediate_size"] or 4 * hidden, model["vocab_size"]
    experts = model.get("num_local_experts") or model.get("num_experts") or 0
    held = inner  # width of the feed-forward part that lies in memory; of experts only some see a token
    if experts:
        inner = model["num_experts_per_tok"] * model["moe_intermediate_size"]
        held = experts * model["moe_intermediate_size"]
    head = model["head_dim"] or hidden // heads
    key_value = model["num_key_value_heads"] or heads
    length = shape["max_length"]
    layer_weights = hidden * head * (2 * heads + 2 * key_value) + 3 * hidden * held + hidden * experts
    weights = layers * layer_weights + vocab * hidden * (1 if model["tie_word_embeddings"] else 2)
    lora = shape["lora"]
    trained = weights if lora is None else layers * lora["r"] * len(lora["targets"]) * (hidden + held)
    tokens = candidate.micro_batch * length
    activations = tokens * layers * (SAVED_VECTORS * hidden + 4 * inner) * size
    if candidate.attention == "eager":  # scores and their softmax, kept for the backward pass
        activations += 2 * candidate.micro_batch * heads * length * length * layers * max(size, 4)
    logits = tokens * vocab * 4  # the fused loss keeps less, the plain one more
    return int(weights * size + trained * (size + 8) + activations + logits)


def machine() -> tuple[int, str | None]:
    """Bytes of main memory, and the C++ compiler that Inductor would call."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), shutil.which("g++")
