"""The plan: what the probe decided, for which shape and platform; training reads it and obeys."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mxt.action.canonical import canonical, dump, restore
from mxt.rule import StageError
from rules._runtime import differences, versions

PLAN_VERSION = 1
DECISIONS = ("attention", "compile", "gradient_accumulation", "micro_batch")

# what a model's config.json calls the sizes that its kernels see
SIZES = (
    "model_type",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
    "tie_word_embeddings",
)
# of a mixture of experts; how many there are has another name in what transformers 5 writes than before it
EXPERT_SIZES = ("num_local_experts", "num_experts", "num_experts_per_tok", "moe_intermediate_size")


def shape_of(model_config: Mapping[str, Any], recipe: Mapping[str, Any]) -> dict[str, Any]:
    """The shape that a plan is for: the model's sizes and what the recipe makes of them.

    model_config: the contents of config.json. recipe: dotted fields. Lengths in tokens, batches
    in sequences.
    """
    targets = recipe["train.lora.targets"]
    return {
        "model": {name: model_config.get(name) for name in SIZES} | experts_of(model_config),
        "max_length": recipe["data.pack.max_length"],
        "batch_size": recipe["train.batch_size"],
        "dtype": recipe["train.dtype"],
        "determinism": recipe["train.determinism"],
        "lora": None
        if recipe["train.lora.r"] is None
        else {"r": recipe["train.lora.r"], "targets": sorted(targets)},
    }


def experts_of(model_config: Mapping[str, Any]) -> dict[str, Any]:
    """The sizes of a mixture of experts; nothing of another model."""
    return {n: model_config[n] for n in EXPERT_SIZES if model_config.get(n) is not None}


def read_model_config(path: Path) -> dict[str, Any]:
    """config.json of a model folder, or the file itself. Raises StageError when it is no JSON object."""
    file = path / "config.json" if path.is_dir() else path
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StageError(
            f"model has no readable config.json: {error}",
            where=str(file),
            hint="give a folder of save_pretrained",
        ) from error
    if not isinstance(config, dict):
        raise StageError("config.json is no JSON object", where=str(file))
    return config


def plan_form(
    decisions: Mapping[str, Any], shape: Mapping[str, Any], platform: Mapping[str, Any]
) -> dict[str, Any]:
    """A whole plan as a mapping; what it holds is decided, nothing in it is measured.

    What Inductor writes is compiled by the machine's own C++ compiler, which may round differently in
    another version: a plan that decides for Inductor names it, so that it is in training's key.
    """
    made_by = versions("torch", "transformers")
    if decisions.get("compile") == "inductor":
        made_by["g++"] = cxx_version()
    return {
        "version": PLAN_VERSION,
        "platform": dict(platform),
        "versions": made_by,
        "shape": dict(shape),
        "decisions": dict(decisions),
    }


def cxx_version() -> str:
    """First line of what the machine's C++ compiler says of itself; "none" without one."""
    try:
        said = subprocess.run(["g++", "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "none"
    return said.stdout.partition("\n")[0]


def write_plan(path: Path, form: Mapping[str, Any]) -> None:
    path.write_bytes(dump(canonical(form)))


def read_plan(path: Path, shape: Mapping[str, Any], platform: Mapping[str, Any]) -> dict[str, Any]:
    """The decisions of a plan made for this shape, platform and these library versions.

    Raises StageError that shows each difference; a plan for something else is never bent to fit.
    """
    fix = "run the probe again: remove the pinned plan, or pin a new one with 'mxt plan pin'"
    try:
        form = restore(json.loads(path.read_text(encoding="utf-8")))
        decisions = form["decisions"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StageError(f"plan is not readable: {error!r}", where=path.name, hint=fix) from error
    here = plan_form(decisions, restore(canonical(shape)), restore(canonical(platform)))
    apart = differences(form, here)
    if apart:
        shown = "; ".join(apart[:8]) + ("; ..." if len(apart) > 8 else "")
        raise StageError(f"plan was made for something else: {shown}", where=path.name, hint=fix)
    if tuple(sorted(decisions)) != DECISIONS:
        raise StageError(
            f"plan decides {', '.join(sorted(decisions))}; needed: {', '.join(DECISIONS)}",
            where=path.name,
            hint=fix,
        )
    if decisions["micro_batch"] * decisions["gradient_accumulation"] != shape["batch_size"]:
        raise StageError(
            f"plan's micro_batch {decisions['micro_batch']} x gradient_accumulation "
            f"{decisions['gradient_accumulation']} is not train.batch_size {shape['batch_size']}",
            where=path.name,
            hint=fix,
        )
    return dict(decisions)
