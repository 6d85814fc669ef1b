"""The table of known models against the library that makes them, without their weights."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from rules._known_models import KNOWN, Shape
from rules._schema.evaluation import NAMES

READS_PICTURES = {
    "depth": 27,
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_heads": 16,
    "patch_size": 16,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "num_position_embeddings": 2304,
    "in_channels": 3,
}


def test_the_rank_that_layers_can_have() -> None:
    assert KNOWN["Qwen/Qwen3-8B"].widths() == {
        **dict.fromkeys(("q_proj", "o_proj", "gate_proj", "up_proj", "down_proj"), 4096),
        **dict.fromkeys(("k_proj", "v_proj"), 1024),
    }
    # all experts of a layer lie in one parameter, and what each of them is decides
    assert KNOWN["Qwen/Qwen3-30B-A3B"].widths() == {
        **dict.fromkeys(("q_proj", "o_proj"), 2048),
        **dict.fromkeys(("k_proj", "v_proj"), 512),
        "gate_up_proj": 1536,
        "down_proj": 768,
    }


def text_config(shape: Shape) -> dict[str, Any]:
    """What transformers calls the sizes."""
    config = {
        "vocab_size": shape.vocab,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "num_experts": shape.experts,
        "num_experts_per_tok": shape.per_token,
        "moe_intermediate_size": shape.expert_intermediate,
        "shared_expert_intermediate_size": shape.shared_intermediate,
        "linear_num_key_heads": shape.linear_key_heads,
        "linear_num_value_heads": shape.linear_value_heads,
        "linear_key_head_dim": shape.linear_head_dim,
        "linear_value_head_dim": shape.linear_head_dim,
    }
    return {name: value for name, value in config.items() if value is not None}


@pytest.mark.parametrize("name", [name for name, shape in KNOWN.items() if not shape.code])
def test_a_model_of_these_sizes_has_as_many_weights(name: str) -> None:
    import torch
    import transformers

    shape = KNOWN[name]
    family = {
        (False, False): "Qwen3Moe" if shape.experts else "Qwen3",
        (True, False): "Qwen3VL",
        (True, True): "Qwen3_5Moe" if shape.experts else "Qwen3_5",
    }[shape.vision_weights > 0, shape.linear_layers > 0]
    sizes = text_config(shape)
    if shape.vision_weights:
        deep = [] if shape.linear_layers else [8, 16, 24]
        pictures = {**READS_PICTURES, "out_hidden_size": shape.hidden, "deepstack_visual_indexes": deep}
        sizes = {"text_config": sizes, "vision_config": pictures}
    ending = "ForConditionalGeneration" if shape.vision_weights else "ForCausalLM"
    config = getattr(transformers, f"{family}Config")(**sizes, tie_word_embeddings=shape.tied)
    with torch.device("meta"):
        model = getattr(transformers, f"{family}{ending}")(config)
    weights = {key: weight.numel() for key, weight in model.named_parameters()}
    assert sum(weights.values()) == shape.weights
    assert sum(n for key, n in weights.items() if "visual" in key) == shape.vision_weights
    if shape.linear_layers:
        linear = {key.partition(".linear_attn.")[0] for key in weights if ".linear_attn." in key}
        assert len(linear) == shape.linear_layers


def test_the_names_of_tasks_are_sorted_and_of_the_locked_lm_eval() -> None:
    head, *names = NAMES.read_text(encoding="utf-8").splitlines()
    assert names == sorted(set(names))
    lock = json.loads((NAMES.parents[2] / "toolchains/cpu-py311.lock.json").read_text())
    locked = {d["name"]: d["version"] for d in lock["distributions"]}
    assert head == f"# lm-eval {locked['lm-eval']}"


@pytest.mark.slow
def test_the_names_of_tasks_are_those_of_the_installed_lm_eval() -> None:
    tool = NAMES.parents[2] / "tools/make_task_names.py"
    done = subprocess.run([sys.executable, str(tool), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
