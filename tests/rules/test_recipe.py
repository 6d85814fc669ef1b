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

from rules._devices import DEVICES, MI300X_ENV
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
    "publish.card": 'cfg["publish"]["card"]',
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
        ("autotune.policy", "runtime", "is 'runtime', and there is only 'aot_only'"),
        ("autotune.collectives", True, "autotune.collectives has no effect on one device"),
        ("autotune.micro_batch", [3], "micro_batch 3 does not divide train.batch_size 4\nthese do: 1, 2, 4"),
        ("autotune", ..., "train needs an 'autotune' section"),
        ("data", ..., "train needs a 'data' section"),
        (
            "train.lora.r",
            65,
            "train.lora.r 65 is more than 64, as wide as q_proj is in the model of model.init",
        ),
        ("train.max_steps", 3, "epochs and 'max_steps' are both given"),
        ("train.epochs", ..., "epochs (or 'max_steps') is missing"),
        ("train.lr", "1e-4", "train.lr: Input should be a valid number"),
        ("train.lr", True, "train.lr: Input should be a valid number"),
        ("train.lr", float("nan"), "train.lr: "),
        ("train.batch_size", 0, "greater than 0"),
        ("train.lerning_rate", 1, "train.lerning_rate: Extra inputs"),
        ("train.dpo", {}, "dpo has no effect with method 'sft'"),
        ("train.method", "grpo", "method 'grpo' needs the section 'train.grpo'"),
        ("train.decay_ratio", 0.1, "decay_ratio has no effect with scheduler 'cosine'"),
        ("train.parallel", "fsdp", "train.parallel is 'fsdp', and there is one device"),
        ("model.path", "m", "init and 'path' are both given"),
        ("model", {}, "hub (or 'init' or 'path') is missing"),
        ("model", {"path": "m", "pretrain": {"steps": 1}}, "pretrain trains a new model"),
        ("model", {"hub": {"repo": "a/b", "revision": "a b"}}, "is 'a b', which is no name of a commit"),
        (
            "model",
            {"hub": {"repo": "a/b", "revision": "01234567"}},
            "is '01234567', which is no whole commit",
        ),
        ("model", {"hub": {"repo": "../b/c", "revision": COMMIT}}, "is '../b/c', and must be 'owner/name'"),
        ("model.kind", "vision_language", "model.kind is 'vision_language', and train.method 'sft'"),
        ("model.trust_remote_code", COMMIT, "must be the digest of the code that it trusts"),
        ("model.trust_remote_code", "unpinned", "has no effect on a model that is made here"),
        ("model.init.experts", {"count": 2, "per_token": 3, "intermediate_size": 8}, "more than there are"),
        (
            "model.init.experts",
            {"count": 4, "intermediate_size": 32},
            "train.lora.targets has 'gate_proj', and no layer of the model of model.init is called so",
        ),
        ("model.pretrain.length", 1000, "pretrain.length 1000 is longer"),
        ("model.init.head_dim", 31, "head_dim 31 must be even"),
        ("model.init.num_key_value_heads", 3, "4 is not a multiple of num_key_value_heads 3"),
        ("data.pack.max_length", 513, "data.pack.max_length 513 is longer than the model of model.init can"),
        ("data.pack.strategy", "wrapped", "is 'wrapped', which runs documents into each other"),
        ("data.pack.overlong", "split", "data.pack.overlong 'split' would tear conversations apart"),
        ("data.hub", {"repo": "a/b", "revision": COMMIT, "files": ["x"]}, "files and 'hub' are both given"),
        ("data.files", ..., "files (or 'hub') is missing"),
        ("data.files", "a.jsonl", "data.files: "),
        ("data.format", "preference", "data.format is 'preference', and train.method 'sft' reads 'auto' or"),
        ("eval.gate.task", "arc", "gate.task 'arc' is none of the tasks: talo, mmlu"),
        ("eval.gate.min_rows", 20, "greater than or equal to 200"),
        ("eval.limit", 100, "limit 100 leaves fewer rows than gate.min_rows 200"),
        ("eval.tasks", ["talo.yaml", "x/talo.yaml"], "tasks name 'talo' twice"),
        ("eval.tasks", ["mmul"], "names 'mmul', and lm-eval 0.4.13 has no such task, did you mean 'mmlu'?"),
        ("train", ..., "autotune plans a training"),
        ("eval.revisions", ..., "tasks names 'mmlu', whose dataset on the Hub may change"),
        ("eval.revisions", {"cais/mmlu": "0123456"}, "is '0123456', which is no whole commit"),
        ("quantize.calibration_rows", 8, "calibration_rows has no effect on ptpc_fp8"),
        ("serve", {"max_length": 1024}, "serve.max_length 1024 is longer than the model of model.init can"),
        ("publish", {}, "hub (or 'ipfs: true') is missing"),
        ("hardware", {"platform": "mi300x", "gpus": 2}, "gpus is 2, on the mi300x it must be 1 or 8"),
        ("hardware", {"platform": "MI300X"}, "names no known device, did you mean 'mi300x'?"),
        ("hardware", {"platform": "h100_8x", "gpus": 8}, "platform 'h100_8x' counts GPUs\nwrite 'h100', and"),
        ("hardware", {"platform": "abacus"}, "platform 'abacus' names no known device"),
        ("hardware", {"gpus": 1}, "gpus is 1, on the cpu it must be 0\nleave it out"),
        ("hardware", {"env": {"A": "1"}}, "hardware.cpu.env: Value error, is for GPUs"),
    ],
)
def test_what_does_not_fit_is_refused(path: str, value: Any, said: str) -> None:
    assert said in refusal(changed(path, value))


def test_the_usual_micro_batches_are_those_that_divide() -> None:
    for batch_size, sizes in ((6, (1, 2)), (3, (1,)), (8, (1, 2, 4))):
        made = changed("autotune", {})
        made["train"]["batch_size"] = batch_size
        autotune = Schema.model_validate(made).autotune
        assert autotune
        assert autotune.micro_batch == sizes


@pytest.mark.parametrize(("given", "kept"), [(False, "none"), ("bfd", "bfd"), ("none", "none")])
def test_packing_is_named_or_switched_off(given: object, kept: str) -> None:
    data = Schema.model_validate(changed("data.pack.strategy", given)).data
    assert data
    assert data.pack.strategy == kept


def hardware(platform: str, **fields: Any) -> Any:
    return Schema.model_validate(changed("hardware", {"platform": platform, "gpus": 1, **fields})).hardware


@pytest.mark.parametrize(
    ("platform", "arch"),
    [("mi300x", "gfx942"), ("mi325x", "gfx942"), ("mi350x", "gfx950"), ("mi355x", "gfx950")],
)
def test_the_eight_variables(platform: str, arch: str) -> None:
    """By default their usual values; a value may change and a name may not go; others may be added."""
    usual = hardware(platform).env
    assert usual == {**MI300X_ENV, "PYTORCH_ROCM_ARCH": arch}
    assert len(usual) == 8
    own = {**usual, "NVTE_CK_IS_V3_ATOMIC_FP32": "0", "A": "b"}
    assert hardware(platform, env=own).env == own
    for name in usual:
        less = {n: v for n, v in usual.items() if n != name}
        made = changed("hardware", {"platform": platform, "gpus": 1, "env": less})
        assert f"lacks {name}\n" in refusal(made)
    other = {**usual, "PYTORCH_ROCM_ARCH": "gfx90a"}
    said = f"env.PYTORCH_ROCM_ARCH is gfx90a, and the {platform} is {arch}"
    assert said in refusal(changed("hardware", {"platform": platform, "gpus": 1, "env": other}))


@pytest.mark.parametrize("device", DEVICES)
def test_each_family_takes_its_own_numbers_of_gpus(device: str) -> None:
    gpus = DEVICES[device].gpus
    for count in range(10):
        made = changed("hardware", {"platform": device, "gpus": count})
        if count > 1:
            made = {k: v for k, v in made.items() if k not in ("train", "autotune", "quantize")}
            del made["eval"]["gate"]
        elif not DEVICES[device].fp8:
            del made["quantize"]
        made.pop("autotune", None) if "train" not in made else made["autotune"].update(attention=["sdpa"])
        if count in gpus:
            assert Schema.model_validate(made).hardware.gpus == count
        else:
            assert f"gpus is {count}, on the {device} it must be {DEVICES[device].allowed}" in refusal(made)


def test_a_platform_may_be_a_variant_of_a_device() -> None:
    assert hardware("h100_pcie").platform == "h100_pcie"
    assert hardware("h100").env == {}
    assert Schema.model_validate(changed("hardware", {"platform": "cpu_avx512"})).hardware.gpus == 0


def test_hub_data_has_no_rows_per_shard() -> None:
    hub = {"repo": "a/b", "revision": COMMIT, "files": ["x.jsonl"]}
    made = changed("data", {"hub": hub, "rows_per_shard": 10, "pack": {"max_length": 64}})
    assert "each file is one shard" in refusal(made)


def sections(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, type[BaseModel], str]]:
    """Every leaf as (dotted name, its section, its own name); of alternative shapes those of each."""
    for name, field in model.model_fields.items():
        inner = list(models_in(field.annotation))
        for kind in inner:
            yield from sections(kind, f"{prefix}{name}.")
        if not inner:
            yield f"{prefix}{name}", model, name


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif typing.get_origin(annotation) is not dict:
        for part in typing.get_args(annotation):
            yield from models_in(part)


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


@pytest.mark.parametrize(
    ("leaf", "section", "name"), LEAVES, ids=[f"{leaf}-{s.__name__}" for leaf, s, _ in LEAVES]
)
def test_each_field_is_described_and_its_section_is_closed(
    leaf: str, section: type[BaseModel], name: str
) -> None:
    assert section.model_fields[name].description, f"{leaf} says nothing about itself"
    assert section.model_config.get("extra") == "forbid"
    assert section.model_config.get("frozen") is True
