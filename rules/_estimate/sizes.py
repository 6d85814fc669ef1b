"""How many weights a model has, how many a token passes through, how many are trained: from its sizes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rules._known_models import KNOWN, Shape

BYTES = {"bfloat16": 2, "float32": 4}


def shape_of_init(init: Mapping[str, Any]) -> Shape:
    """The sizes of a model that a recipe makes (model.init)."""
    experts = init["experts"] or {}
    return Shape(
        hidden=init["hidden_size"],
        layers=init["num_hidden_layers"],
        heads=init["num_attention_heads"],
        kv_heads=init["num_key_value_heads"],
        head_dim=init["head_dim"],
        intermediate=None if experts else init["intermediate_size"],
        vocab=init["vocab_size"],
        positions=init["max_position_embeddings"],
        tied=init["tie_word_embeddings"],
        experts=experts.get("count"),
        per_token=experts.get("per_token"),
        expert_intermediate=experts.get("intermediate_size"),
    )


def shape_of_folder(folder: Path) -> Shape | None:
    """The sizes in a folder's config.json; None where it does not say them by the usual names."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        config = config.get("text_config") or config
        heads = config["num_attention_heads"]
        experts = config.get("num_experts")
        return Shape(
            hidden=config["hidden_size"],
            layers=config["num_hidden_layers"],
            heads=heads,
            kv_heads=config.get("num_key_value_heads") or heads,
            head_dim=config.get("head_dim") or config["hidden_size"] // heads,
            intermediate=None if experts else config["intermediate_size"],
            vocab=config["vocab_size"],
            positions=config.get("max_position_embeddings") or 0,
            tied=bool(config.get("tie_word_embeddings")),
            experts=experts,
            per_token=config.get("num_experts_per_tok"),
            expert_intermediate=config.get("moe_intermediate_size"),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def shape_of(model: Mapping[str, Any], package: Path) -> Shape | None:
    """The sizes of a recipe's model section, where they are known without a download."""
    if model["init"] is not None:
        return shape_of_init(model["init"])
    if model["hub"] is not None:
        return KNOWN.get(model["hub"]["repo"])
    return shape_of_folder(package / model["path"])


def attention_weights(shape: Shape) -> int:
    """Of one layer whose heads look at every token."""
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    return shape.hidden * (queries * (2 if shape.gated else 1) + 2 * keys + queries)


def linear_widths(shape: Shape) -> tuple[int, int]:
    """Keys and values of a layer with linear attention."""
    size = shape.linear_head_dim or 0
    return (shape.linear_key_heads or 0) * size, (shape.linear_value_heads or 0) * size


def linear_weights(shape: Shape) -> int:
    """Of one layer with linear attention: projections, gates, the short convolution."""
    keys, values = linear_widths(shape)
    gates = 2 * (shape.linear_value_heads or 0)
    return shape.hidden * (2 * keys + 3 * values + gates) + 4 * (2 * keys + values)


def expert_weights(shape: Shape) -> int:
    """Of one expert in one layer."""
    return 3 * shape.hidden * (shape.expert_intermediate or 0)


def feed_forward_weights(shape: Shape) -> int:
    """Of one layer, all experts and the router counted."""
    if shape.experts is None:
        return 3 * shape.hidden * (shape.intermediate or 0)
    shared = 3 * shape.hidden * (shape.shared_intermediate or 0) + (
        shape.hidden if shape.shared_intermediate else 0
    )
    return shape.experts * (expert_weights(shape) + shape.hidden) + shared


def weights(shape: Shape) -> int:
    """All of them: as the table has it, else counted (heads with norms of their own, as Qwen3's, assumed)."""
    if shape.weights is not None:
        return shape.weights
    full = shape.layers - shape.linear_layers
    norms = shape.layers * (2 * shape.hidden + 2 * shape.head_dim) + shape.hidden
    return (
        full * attention_weights(shape)
        + shape.linear_layers * linear_weights(shape)
        + shape.layers * feed_forward_weights(shape)
        + embedding(shape) * (1 if shape.tied else 2)
        + norms
        + shape.vision_weights
    )


def embedding(shape: Shape) -> int:
    return shape.vocab * shape.hidden


def active(shape: Shape) -> int:
    """Weights of the text model that each token passes through, embeddings included."""
    asleep = 0
    if shape.experts is not None and shape.per_token is not None:
        asleep = shape.layers * (shape.experts - shape.per_token) * expert_weights(shape)
    return weights(shape) - shape.vision_weights - asleep


def multiplied(shape: Shape) -> int:
    """Those of them that a matrix product reads for each token: looking up an embedding is none."""
    return active(shape) - (0 if shape.tied else embedding(shape))


def adapter(shape: Shape, rank: int, targets: Iterable[str]) -> int:
    """Weights of LoRA adapters on these layers; on experts, each expert has its own."""
    hidden, queries, keys = shape.hidden, shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    full = shape.layers - shape.linear_layers
    sides = {
        "q_proj": full * (hidden + queries * (2 if shape.gated else 1)),
        "k_proj": full * (hidden + keys),
        "v_proj": full * (hidden + keys),
        "o_proj": full * (hidden + queries),
    }
    wide = shape.intermediate if shape.experts is None else shape.shared_intermediate
    if wide:
        sides |= dict.fromkeys(("gate_proj", "up_proj", "down_proj"), shape.layers * (hidden + wide))
    if shape.experts is not None:
        narrow, count = shape.expert_intermediate or 0, shape.layers * shape.experts
        sides["gate_up_proj"] = count * (hidden + 2 * narrow)
        sides["down_proj"] = sides.get("down_proj", 0) + count * (hidden + narrow)
    return sum(rank * sides[t] for t in dict.fromkeys(targets) if t in sides)
