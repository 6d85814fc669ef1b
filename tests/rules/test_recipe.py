"""The recipe's schema: what it refuses and says, and that a stage or the macro reads each of its fields."""

from __future__ import annotations

import copy
import importlib
import json
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from rules.recipe import Schema

RULES = Path(__file__).resolve().parents[2] / "rules"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
# fields that finetune.mxt reads, with the text by which it does
MACRO = {
    "hardware.platform": '["platform"]',
    "model.init.corpus": 'model["init"]["corpus"]',
    "model.path": 'model["path"]',
    "data.files": 'data["files"]',
    "data.chat_template": 'data["chat_template"]',
    "eval.files": 'eval_cfg["files"]',
}


PINS = {"cais/mmlu": "0" * 40}


def recipe() -> dict[str, Any]:
    """A whole recipe that is right."""
    return {
        "autotune": {"micro_batch": [1, 2]},
        "model": {"init": {"corpus": ["a.txt"], "hidden_size": 64}, "pretrain": {"steps": 3}},
        "data": {"files": ["a.jsonl"], "pack": {"max_length": 64}, "dedupe": {"minhash": {}}},
        "train": {"lr": 1e-3, "epochs": 1, "lora": {"r": 8}, "batch_size": 4},
        "eval": {"tasks": ["tiny/talo.yaml", "mmlu"], "revisions": PINS, "gate": {"task": "talo"}},
        "quantize": {},
    }


def changed(path: str, value: Any) -> dict[str, Any]:
    """The right recipe with one field set; value ... removes it."""
    made = copy.deepcopy(recipe())
    *parents, last = path.split(".")
    place = made
    for name in parents:
        place = place[name]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return made


def refusal(made: dict[str, Any]) -> str:
    with pytest.raises(ValidationError) as caught:
        Schema.model_validate(made)
    return "\n".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in caught.value.errors())


def test_a_whole_recipe_is_taken_and_fully_defaulted() -> None:
    got = Schema.model_validate(recipe())
    assert got.meta.seed == 2048
    assert got.data
    assert got.data.dedupe
    assert got.data.dedupe.minhash
    assert got.data.dedupe.minhash.threshold == 0.85
    assert got.eval
    assert got.eval.task_names == ("talo", "mmlu")
    # what a macro sees is plain JSON, and JSON gives the same recipe again
    assert Schema.model_validate(json.loads(json.dumps(got.model_dump(mode="json")))) == got


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("autotune.policy", "runtime", "policy is 'runtime', must be 'aot_only'"),
        ("autotune.micro_batch", [3], "micro_batch 3 does not divide train.batch_size 4"),
        ("autotune", ..., "'train' needs an 'autotune' section"),
        ("data", ..., "'train' needs a 'data' section"),
        ("train.lora.r", 65, "train.lora.r 65 is larger than the model's narrowest layer (64)"),
        ("train.max_steps", 3, "exactly one of 'epochs' and 'max_steps'"),
        ("train.epochs", ..., "exactly one of 'epochs' and 'max_steps'"),
        ("train.lr", "1e-4", "train.lr: Input should be a valid number"),
        ("train.lr", True, "train.lr: Input should be a valid number"),
        ("train.lr", float("nan"), "train.lr: "),
        ("train.batch_size", 0, "greater than 0"),
        ("train.lerning_rate", 1, "train.lerning_rate: Extra inputs"),
        ("model.path", "m", "exactly one of 'init', 'hub' and 'path' (given: init and path)"),
        ("model", {}, "exactly one of 'init', 'hub' and 'path' (given: none of them)"),
        ("model", {"path": "m", "pretrain": {"steps": 1}}, "'pretrain' trains a new model"),
        (
            "model",
            {"hub": {"repo": "a/b", "revision": "main"}},
            "hub.revision: Value error, 'main' is no commit",
        ),
        ("model", {"hub": {"repo": "../b/c", "revision": COMMIT}}, "model.hub.repo: String should match"),
        ("model.pretrain.length", 1000, "pretrain.length 1000 is longer"),
        ("model.init.head_dim", 31, "head_dim 31 must be even"),
        ("model.init.num_key_value_heads", 3, "4 is not a multiple of num_key_value_heads 3"),
        ("data.pack.max_length", 513, "max_length 513 is longer than"),
        ("data.hub", {"repo": "a/b", "revision": COMMIT, "files": ["x"]}, "one of 'files' and 'hub'"),
        ("data.files", ..., "exactly one of 'files' and 'hub'"),
        ("data.files", "a.jsonl", "data.files: "),
        ("eval.gate.task", "arc", "gate.task 'arc' is none of the tasks: talo, mmlu"),
        ("eval.gate.min_rows", 20, "greater than or equal to 200"),
        ("eval.limit", 100, "limit 100 leaves fewer rows than gate.min_rows 200"),
        ("eval.tasks", ["talo", "x/talo.yaml"], "task 'talo' is given twice"),
        ("train", ..., "'autotune' plans a training"),
        ("eval.revisions", ..., "task 'mmlu' reads a dataset of the Hub, which may change: pin it"),
        ("eval.revisions", {"cais/mmlu": "main"}, "'main' is no commit"),
        ("quantize.calibration_rows", 8, "'calibration_rows' has no effect on ptpc_fp8"),
    ],
)
def test_what_does_not_fit_is_refused(path: str, value: Any, said: str) -> None:
    assert said in refusal(changed(path, value))


def test_hub_data_has_no_rows_per_shard() -> None:
    hub = {"repo": "a/b", "revision": COMMIT, "files": ["x.jsonl"]}
    made = changed("data", {"hub": hub, "rows_per_shard": 10, "pack": {"max_length": 64}})
    assert "each file is one shard" in refusal(made)


def sections(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, type[BaseModel], str]]:
    """Every leaf as (dotted name, its section, its own name)."""
    for name, field in model.model_fields.items():
        for kind in (field.annotation, *typing.get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from sections(kind, f"{prefix}{name}.")
                break
        else:
            yield f"{prefix}{name}", model, name


LEAVES = list(sections(Schema))


def test_each_field_is_read_and_only_what_exists_is_declared() -> None:
    declared: set[str] = set()
    for path in RULES.glob("[a-z]*.py"):
        module = importlib.import_module(f"rules.{path.stem}")
        declared |= {*getattr(module, "KEYED", ()), *getattr(module, "UNKEYED", ())}
    macro = (RULES / "finetune.mxt").read_text()
    for field, text in MACRO.items():
        assert text in macro, field
    assert declared | set(MACRO) == {leaf for leaf, _, _ in LEAVES}
    assert not declared & set(MACRO)


@pytest.mark.parametrize(("leaf", "section", "name"), LEAVES, ids=[leaf for leaf, _, _ in LEAVES])
def test_each_field_is_described_and_its_section_is_closed(
    leaf: str, section: type[BaseModel], name: str
) -> None:
    assert section.model_fields[name].description, f"{leaf} says nothing about itself"
    assert section.model_config.get("extra") == "forbid"
    assert section.model_config.get("frozen") is True
