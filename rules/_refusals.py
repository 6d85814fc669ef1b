"""What stages say of settings that they cannot carry out yet, or not before `mxt pin` has been run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mxt.rule import Refusal, not_yet
from rules._revisions import UNPINNED, is_commit, is_pattern

METHODS = ("sft", "cpt")
FORMS = ("auto", "messages", "prompt_completion", "alpaca", "sharegpt", "text")
NAMES = {
    "tool_use": "training on calls of functions (tool_use)",
    "vision_sft": "training on pictures (vision_sft)",
    "rlhf": "training against a reward model (RLHF)",
}


def unpinned(field: str, value: str | None, label: str) -> Refusal | None:
    """A refusal where a revision is given and is no commit. label: of a target made from the recipe."""
    if value is None or is_commit(value):
        return None
    what = "is not pinned" if value == UNPINNED else f"is '{value}', which may come to mean another commit"
    return Refusal(
        "unpinned", f"{field} {what}", f"look up its commit and write it into the recipe: mxt pin {label}"
    )


def patterns(files: Sequence[str], label: str) -> Refusal | None:
    """A refusal where files of the Hub are given by patterns, which may come to match others."""
    for name in files:
        if is_pattern(name):
            hint = f"write the files that it matches into the recipe: mxt pin {label}"
            return Refusal("unpinned", f"data.hub.files has the pattern '{name}'", hint)
    return None


def pictures(stage: str, config: Mapping[str, Any]) -> Refusal | None:
    """A refusal where the model also reads pictures."""
    if config["model.kind"] == "text":
        return None
    return not_yet(f"{stage} a model that reads pictures", hint="leave model.kind out to take its text alone")


def on_gpu(stage: str, config: Mapping[str, Any]) -> Refusal | None:
    """A refusal where the recipe's device is a GPU."""
    return not_yet(f"{stage} on a GPU") if config["hardware.gpus"] else None


def training(config: Mapping[str, Any]) -> Refusal | None:
    """The first thing that training lacks for this recipe, the one that says most."""
    method, backend = config["train.method"], config["train.backend"]
    if method not in METHODS:
        return not_yet(NAMES.get(method, f"training by {method.upper()}"))
    if backend != "trl":
        return not_yet(f"training with {backend}", hint="leave train.backend out: TRL is what trains today")
    if config["train.lora.base"] not in (None, "full"):
        return not_yet("adapters over 4-bit weights (QLoRA)", hint="leave train.lora.base out")
    if config["train.optimizer"] != "adamw":
        return not_yet(f"the optimizer {config['train.optimizer']}", hint="leave train.optimizer out")
    if config["train.parallel"] != "none":
        return not_yet(f"training on several GPUs ({config['train.parallel']})")
    return on_gpu("training", config)


def rows(config: Mapping[str, Any]) -> Refusal | None:
    """A refusal of forms of rows that no stage reads yet."""
    form = config["data.format"]
    return None if form in FORMS else not_yet(f"rows of form '{form}'")
