"""Every field of a recipe, changed by itself: exactly the actions whose rules declare it change their keys.

Analysis only, nothing runs. All changed recipes are targets of one package, so it is loaded once.
"""

from __future__ import annotations

import ast
import copy
import shutil
import typing
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from blake3 import blake3
from pydantic import BaseModel, ValidationError

from mxt.action.action import ActionId, OutputRef
from mxt.action.key import InputDigest, action_form
from mxt.cli.session import Session
from mxt.graph.graph import ActionGraph
from rules._devices import MI300X_ENV
from rules.recipe import Schema

REPOSITORY = Path(__file__).resolve().parents[2]
RULES = REPOSITORY / "rules"

# Recipes that together have all sections, each the smallest in which its fields can be changed.
REST: dict[str, Any] = {
    "meta": {"description": "one", "seed": 1},
    "hardware": {"platform": "cpu", "price_per_hour": 1.0},
    "autotune": {"attention": ["sdpa"], "compile": ["none"], "micro_batch": [1, 2], "budget_s": 5.0},
    "train": {"lora": {"r": 4}, "lr": 1e-3, "max_steps": 10, "batch_size": 4},
    "eval": {"tasks": ["t.yaml"], "files": ["t.jsonl"], "gate": {"task": "t"}},
    "quantize": {"scheme": "ptpc_fp8"},
}
PACK = {"max_length": 64}
NEW: dict[str, Any] = {
    **REST,
    "model": {"init": {"corpus": ["a.txt"]}, "pretrain": {"steps": 10, "length": 64}},
    "data": {"files": ["rows-0.jsonl"], "pack": PACK, "dedupe": {"minhash": {}}},
}
FOLDER: dict[str, Any] = {
    **REST,
    "model": {"path": "model"},
    "data": {"files": ["rows-0.jsonl"], "pack": PACK},
    "train": {"lr": 1e-3, "epochs": 2.0, "batch_size": 4},
    "quantize": {"scheme": "fp8"},
}


def by_method(method: str, form: str, **section: Any) -> dict[str, Any]:
    """A recipe that trains otherwise than by sft."""
    train = {"method": method, "lr": 1e-3, "epochs": 1.0, "batch_size": 4, **section}
    return {**FOLDER, "data": {"files": ["rows-0.jsonl"], "format": form, "pack": PACK}, "train": train}


BASES: dict[str, dict[str, Any]] = {
    "new": NEW,
    "experts": {
        **NEW,
        "model": {"init": {"corpus": ["a.txt"], "experts": {"count": 4, "intermediate_size": 32}}},
        "train": {**REST["train"], "lora": {"r": 4, "targets": ["q_proj", "down_proj"]}},
    },
    "hub": {
        **REST,
        "model": {"hub": {"repo": "a/model", "revision": "0" * 40}},
        "data": {
            "hub": {"repo": "a/data", "revision": "0" * 40, "files": ["a.jsonl"]},
            "dedupe": {"semdedup": {}},
            "pack": PACK,
        },
        "serve": {},
        "publish": {"hub": "a/b", "card": "card.md"},
        "receipt": {"anchor": {}},
    },
    "folder": FOLDER,
    "text": by_method("cpt", "text", scheduler="wsd", decay_ratio=0.1),
    "gpus": {
        **NEW,
        "hardware": {"platform": "h100", "gpus": 2, "env": {"A": "1"}},
        "train": {"lr": 1e-3, "epochs": 2.0, "batch_size": 8, "parallel": "ddp"},
        "quantize": FOLDER["quantize"],
    },
    "judge": {"model": {"path": "model"}, "eval": {"tasks": ["t.yaml"], "files": ["t.jsonl"]}},
    "dpo": by_method("dpo", "preference", dpo={}),
    "orpo": by_method("orpo", "preference", orpo={}),
    "kto": by_method("kto", "rated", kto={}),
    "grpo": by_method("grpo", "prompt", grpo={"max_answer": 64}),
    "rlhf": by_method("rlhf", "prompt", rlhf={"reward_repo": "a/reward", "max_answer": 64}),
}

# For each field a value that no base has.
OTHER: dict[str, Any] = {
    "meta.description": "two",
    "meta.seed": 2,
    "hardware.platform": "cpu_other",
    "hardware.gpus": 4,
    "hardware.env": {"A": "2"},
    "hardware.price_per_hour": 2.0,
    "autotune.budget_s": 6.0,
    "autotune.search": "enumerate",
    "autotune.attention": ["eager"],
    "autotune.gemm": ["inductor"],
    "autotune.compile": ["none", "inductor"],
    "autotune.recompute": ["none", "all"],
    "autotune.micro_batch": [2],
    "autotune.collectives": False,
    "autotune.steps": 77,
    "model.init.corpus": ["b.txt"],
    "model.init.vocab_size": 512,
    "model.init.hidden_size": 64,
    "model.init.intermediate_size": 128,
    "model.init.num_hidden_layers": 3,
    "model.init.num_attention_heads": 8,
    "model.init.num_key_value_heads": 4,
    "model.init.head_dim": 16,
    "model.init.max_position_embeddings": 256,
    "model.init.rope_theta": 500.0,
    "model.init.tie_word_embeddings": False,
    "model.init.experts.count": 8,
    "model.init.experts.per_token": 3,
    "model.init.experts.intermediate_size": 16,
    "model.hub.repo": "another/model",
    "model.hub.revision": "1" * 40,
    "model.path": "model2",
    "model.kind": "vision_language",
    "model.trust_remote_code": "a" * 64,
    "model.pretrain.steps": 11,
    "model.pretrain.batch_size": 4,
    "model.pretrain.length": 32,
    "model.pretrain.lr": 1e-4,
    "model.pretrain.weight_decay": 0.1,
    "model.pretrain.warmup_steps": 3,
    "model.pretrain.checkpoint_steps": 7,
    "data.files": ["rows-1.jsonl"],
    "data.hub.repo": "another/data",
    "data.hub.revision": "1" * 40,
    "data.hub.files": ["b.jsonl"],
    "data.format": "messages",
    "data.limit": 3,
    "data.rows_per_shard": 1000,
    "data.on_bad_rows": "skip",
    "data.max_row_bytes": 5000,
    "data.chat_template": "chat.jinja",
    "data.dedupe.exact": False,
    "data.dedupe.minhash.threshold": 0.5,
    "data.dedupe.minhash.num_perm": 64,
    "data.dedupe.minhash.ngram": 3,
    "data.dedupe.semdedup.threshold": 0.5,
    "data.dedupe.semdedup.repo": "another/model",
    "data.dedupe.semdedup.revision": "1" * 40,
    "data.dedupe.semdedup.clusters": 7,
    "data.pack.max_length": 32,
    "data.pack.strategy": "none",
    "data.pack.overlong": "drop",
    "train.method": "sft",
    "train.backend": "axolotl",
    "train.parallel": "fsdp",
    "train.lora.r": 8,
    "train.lora.alpha": 8,
    "train.lora.dropout": 0.5,
    "train.lora.targets": ["q_proj"],
    "train.lora.base": "nf4",
    "train.dpo.beta": 0.2,
    "train.orpo.beta": 0.2,
    "train.kto.beta": 0.2,
    "train.kto.desirable_weight": 2.0,
    "train.kto.undesirable_weight": 2.0,
    "train.grpo.generations": 2,
    "train.grpo.kl": 0.1,
    "train.grpo.max_answer": 32,
    "train.grpo.temperature": 0.5,
    "train.grpo.reward": "exact",
    "train.rlhf.reward_repo": "another/reward",
    "train.rlhf.reward_revision": "1" * 40,
    "train.rlhf.kl": 0.1,
    "train.rlhf.max_answer": 32,
    "train.rlhf.temperature": 0.5,
    "train.lr": 2e-3,
    "train.epochs": 3.0,
    "train.max_steps": 20,
    "train.batch_size": 8,
    "train.optimizer": "muon",
    "train.betas": [0.8, 0.9],
    "train.weight_decay": 0.1,
    "train.scheduler": "linear",
    "train.warmup_ratio": 0.5,
    "train.decay_ratio": 0.2,
    "train.max_grad_norm": 2.0,
    "train.determinism": "free",
    "train.dtype": "bfloat16",
    "train.logging_steps": 3,
    "train.checkpoint_steps": 7,
    "eval.tasks": ["t.yaml", "u.yaml"],
    "eval.files": ["t.jsonl", "u.jsonl"],
    "eval.revisions": {"cais/mmlu": "0" * 40},
    "eval.num_fewshot": 2,
    "eval.limit": 300,
    "eval.batch_size": 2,
    "eval.chat_template": True,
    "eval.code": "sandbox",
    "eval.gate.task": "u",
    "eval.gate.metric": "acc_norm",
    "eval.gate.min_rows": 250,
    "eval.gate.standard_errors": 4.0,
    "quantize.scheme": "fp8",
    "quantize.exclude": ["lm_head", "*q_proj"],
    "quantize.calibration_rows": 8,
    "serve.engine": "sglang",
    "serve.max_length": 100,
    "serve.tool_parser": "hermes",
    "serve.host": "0.0.0.0",
    "serve.port": 8001,
    "serve.memory_fraction": 0.5,
    "publish.hub": "another/b",
    "publish.private": False,
    "publish.ipfs": True,
    "publish.license": "mit",
    "publish.card": "card2.md",
    "receipt.anchor.chain": "eip155:1",
    "receipt.anchor.registry": "0x" + "1" * 40,
    "receipt.anchor.confirmations": 3,
}
# Fields for which this version knows one value.
SINGLE = {"autotune.policy": "aot_only"}

# Fields that finetune.mxt turns into inputs, outputs, variables or a platform: the actions whose keys change
# beside those whose rules declare the field, and which parts of the keys.
ON_DEVICE = {
    "init_model",
    "pretrain",
    "probe",
    "train",
    "eval_base",
    "eval",
    "quark_extension",
    "quantize",
}
GRAPH: dict[str, tuple[set[str], set[str]]] = {
    "hardware.platform": ({"*"}, {"platform", "environment"}),
    "hardware.gpus": (ON_DEVICE, {"platform"}),
    "hardware.env": (ON_DEVICE, {"environment"}),
    "model.init.corpus": ({"init_model", "pretrain"}, {"inputs"}),
    "model.path": ({"pack", "probe", "train", "eval_base"}, {"inputs"}),  # the others take the tuned one
    "data.files": ({"shards"}, {"inputs"}),
    "data.chat_template": ({"pack"}, {"inputs"}),
    "eval.tasks": ({"eval_base", "eval"}, {"inputs"}),
    "eval.files": ({"eval_base", "eval"}, {"inputs"}),
    "quantize.scheme": ({"quantize"}, {"inputs"}),  # fp8 is calibrated on the data
    "publish.card": ({"publish"}, {"inputs"}),
}


def leaves(section: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """The dotted names of all fields that are no sections; of alternative shapes those of each."""
    for name, field in section.model_fields.items():
        inner = list(models_in(field.annotation))
        for kind in inner:
            yield from leaves(kind, f"{prefix}{name}.")
        if not inner:
            yield prefix + name


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif typing.get_origin(annotation) is not dict:
        for part in typing.get_args(annotation):
            yield from models_in(part)


LEAVES = tuple(dict.fromkeys(leaves(Schema)))


def value_of(recipe: Any, field: str) -> Any:
    """A field's value with defaults filled in; LookupError where its section is absent."""
    value: Any = Schema.model_validate(recipe)
    for part in field.split("."):
        if value is None:
            raise LookupError(field)
        value = getattr(value, part)
    return value


def changed(recipe: dict[str, Any], field: str, value: Any) -> dict[str, Any]:
    """A copy of the recipe in which one field (or section) has another value."""
    recipe = copy.deepcopy(recipe)
    *sections, last = field.split(".")
    at = recipe
    for section in sections:
        at = at.setdefault(section, {})
    at[last] = value
    return recipe


def base_for(field: str) -> tuple[str, dict[str, Any]]:
    """The first base in which the field can be changed alone to its other value, and its name."""
    bases = BASES
    if field == "eval.gate.task":  # which is one of them
        bases = {"two_tasks": changed(BASES["new"], "eval.tasks", OTHER["eval.tasks"])}
    for name, recipe in bases.items():
        try:
            value_of(recipe, field)  # its section is there
            if value_of(changed(recipe, field, OTHER[field]), field) != value_of(recipe, field):
                return name, recipe
        except (LookupError, ValidationError):
            continue
    raise AssertionError(f"no base in which '{field}' alone can be changed")


@dataclass
class Analysed:
    """All recipes' actions, and what the rules declare."""

    root: Path
    session: Session
    graph: ActionGraph

    def actions(self, recipe: str) -> dict[str, Any]:
        """A recipe's actions by stage: {"train": Action, "pack[0000]": Action}."""
        prefix = f"//:{recipe}."
        return {
            str(identity).removeprefix(prefix): action
            for identity, action in self.graph.actions.items()
            if identity.label.startswith(prefix)
        }

    def forms(self, recipe: str) -> dict[str, dict[str, Any]]:
        """Their keys' forms, as if all that other actions make were the same as before.

        An output has a stand-in for its digest, made of the action and the name of the output.
        """
        return {stage: self.form(recipe, action) for stage, action in self.actions(recipe).items()}

    def form(self, recipe: str, action: Any) -> dict[str, Any]:
        digests = {}
        for item in action.inputs:
            if isinstance(item.ref, OutputRef):
                kind, made = "file", f"{item.ref.action.label.removeprefix(f'//:{recipe}')} {item.ref[1:]}"
                digests[item.name] = InputDigest(kind, made)
            elif hasattr(item.ref, "digest"):
                digests[item.name] = InputDigest("file", item.ref.digest)
            else:
                digests[item.name] = source_digest(self.root / item.ref.path)
        return action_form(action, digests)

    def declared(self, stage: str, kind: str) -> tuple[str, ...]:
        """KEYED or UNKEYED of a stage's rule."""
        entry = self.entry(stage)
        return getattr(self.session.definition(entry), kind)

    def entry(self, stage: str) -> str:
        stage = stage.partition("[")[0]
        return "evaluate" if stage.startswith("eval") else stage


def source_digest(path: Path) -> InputDigest:
    if path.is_dir():
        names = sorted(p.name + p.read_text() for p in path.iterdir())
        return InputDigest("dir", blake3("".join(names).encode()).hexdigest())
    return InputDigest("file", blake3(path.read_bytes()).hexdigest())


EFFECTS = {"serve": "serve", "publish": "publish", "receipt": "anchor"}
ABSENT = {
    "model.pretrain": "new",
    "data.dedupe": "new",
    "data.dedupe.minhash": "new",
    "train.lora": "new",
    "eval.gate": "new",
    "quantize": "new",
}


@pytest.fixture(scope="module")
def analysed(tmp_path_factory: pytest.TempPathFactory) -> Analysed:
    """One package with a target for each base, each changed field and each absent section."""
    root = tmp_path_factory.mktemp("keys")
    shutil.copytree(REPOSITORY / "toolchains", root / "toolchains")
    for name in (
        "a.txt",
        "b.txt",
        "t.yaml",
        "u.yaml",
        "t.jsonl",
        "u.jsonl",
        "chat.jinja",
        "card.md",
        "card2.md",
    ):
        (root / name).write_text(name)
    for number in range(2):
        (root / f"rows-{number}.jsonl").write_text(f'{{"text": "{number}"}}\n' * 5)
    for name in ("model", "model2"):
        (root / name).mkdir()
        (root / name / "config.json").write_text(name)
    recipes = dict(BASES)
    for field, value in OTHER.items():
        name, base = base_for(field)
        recipes[name] = base
        recipes[field] = changed(base, field, value)
    for section, base_name in ABSENT.items():
        recipes[f"without {section}"] = changed(BASES[base_name], section, None)
    for device in ("mi300x", "mi355x", "a100"):
        recipes[device] = {**BASES["gpus"], "hardware": {"platform": device, "gpus": 8}, "autotune": {}}
        if device == "a100":  # its matrix units have no FP8
            del recipes[device]["quantize"]
    recipes["mi300x env"] = changed(
        recipes["mi300x"], "hardware.env", {**MI300X_ENV, "NCCL_MIN_NCHANNELS": "64"}
    )
    recipes["split"] = changed(BASES["new"], "data.rows_per_shard", 2)
    text = (REPOSITORY / "MXTBUILD").read_text()
    text += 'platform(name = "cpu_other", arch = "x86_64", threads = 2)\n'
    text = 'load("@mxt//rules:finetune.mxt", "finetune")\n' + text
    for name, recipe in recipes.items():
        target = target_of(name)
        (root / f"{target}.recipe.yaml").write_text(yaml.safe_dump(recipe))
        text += f'finetune(name = "{target}", recipe = "{target}.recipe.yaml", toolchain = "//:cpu_py311")\n'
    (root / "MXTBUILD").write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MXT_KEY_FILE", str(tmp_path_factory.mktemp("key") / "key"))
        patch.delenv("MXT_STORE", raising=False)
        session = Session(Namespace(workspace=str(root), store=None))
        labels = [f"//:{target_of(name)}" for name in recipes]
        for name, recipe in recipes.items():  # what is run and not built is part of no other target
            labels += [f"//:{target_of(name)}.{EFFECTS[s]}" for s in EFFECTS.keys() & recipe.keys()]
        graph = session.analyse(labels)
    return Analysed(root, session, graph)


def target_of(name: str) -> str:
    return "r_" + name.replace(".", "_").replace(" ", "_")


def differing(old: dict[str, Any], new: dict[str, Any]) -> set[str]:
    """In which parts two forms differ; of config, in which fields: {"inputs", "config.train.lr"}."""
    found = {part for part in old if part != "config" and old[part] != new[part]}
    assert old["config"].keys() == new["config"].keys()
    return found | {f"config.{name}" for name in old["config"] if old["config"][name] != new["config"][name]}


def test_there_is_another_value_for_every_field() -> None:
    assert set(LEAVES) == OTHER.keys() | SINGLE.keys()
    for field in OTHER:
        base_for(field)


@pytest.mark.parametrize("field", OTHER)
def test_a_field_changes_the_keys_of_those_who_declare_it(analysed: Analysed, field: str) -> None:
    base, _ = base_for(field)
    before, after = analysed.forms(target_of(base)), analysed.forms(target_of(field))
    assert before.keys() == after.keys()
    found = {stage: differing(before[stage], after[stage]) for stage in before}

    expected: dict[str, set[str]] = {stage: set() for stage in before}
    stages_of_graph, changed_parts = GRAPH.get(field, (set(), set()))
    for stage, changes in expected.items():
        if field in analysed.declared(stage, "keyed"):
            changes.add(f"config.{field}")
        if stages_of_graph & {"*", stage.partition("[")[0]}:
            changes.update(changed_parts)
    assert found == expected

    # what is in no key arrives all the same
    for stage, action in analysed.actions(target_of(field)).items():
        earlier = analysed.actions(target_of(base))[stage]
        arrived = field in action.unkeyed and action.unkeyed[field] != earlier.unkeyed[field]
        assert arrived == (field in analysed.declared(stage, "unkeyed"))


@pytest.mark.parametrize("field", LEAVES)
def test_a_field_is_read_by_a_rule_or_by_the_macro(analysed: Analysed, field: str) -> None:
    readers = {
        (rule, kind)
        for rule in rules()
        for kind in ("keyed", "unkeyed")
        if field in getattr(analysed.session.definition(rule), kind)
    }
    assert readers or field in GRAPH, f"no rule declares '{field}'"
    assert len({kind for _, kind in readers}) < 2, f"keyed by one, unkeyed by another: {readers}"
    for rule, _ in readers:
        if reads(rule, field):
            continue
        # work that is not written yet: where the field has another value, this rule's actions refuse
        own = [a for s, a in analysed.actions(target_of(field)).items() if analysed.entry(s) == rule]
        everywhere = [a for a in analysed.graph.actions.values() if a.entry.startswith(f"rules.{rule}:")]
        assert everywhere
        for action in own or everywhere:
            assert action.refusal is not None, f"rules/{rule}.py declares '{field}' and never reads it"


@pytest.mark.parametrize("field", SINGLE)
def test_a_field_of_one_value_refuses_others_and_is_keyed(analysed: Analysed, field: str) -> None:
    assert value_of(BASES["new"], field) == SINGLE[field]
    with pytest.raises(ValidationError, match=field.rpartition(".")[2]):
        Schema.model_validate(changed(BASES["new"], field, "another"))
    assert field in analysed.declared("probe", "keyed")


def rules() -> list[str]:
    """The built-in rules."""
    found = [p.stem for p in RULES.glob("*.py") if not p.stem.startswith("_")]
    return [name for name in found if "def actions(" in (RULES / f"{name}.py").read_text()]


def reads(rule: str, field: str) -> bool:
    """Whether the rule or what it imports names the field, or its whole section, beside declaring it."""
    texts = set()
    waiting, seen = [rule], set()
    while waiting:
        name = waiting.pop()
        path = RULES / f"{name.replace('.', '/')}.py"
        if name in seen or not path.is_file():
            continue
        seen.add(name)
        tree = ast.parse(path.read_text())
        body = [s for s in tree.body if not is_declaration(s)]
        for node in (n for statement in body for n in ast.walk(statement)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.add(node.value)
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rules"):
                inner = (node.module or "").removeprefix("rules").removeprefix(".")
                waiting += [inner] if inner else []
                waiting += [f"{inner}.{a.name}".strip(".") for a in node.names]
    section = field.rpartition(".")[0] + "."
    return field in texts or section in texts


def is_declaration(statement: ast.stmt) -> bool:
    """KEYED = ... or UNKEYED = ..."""
    return isinstance(statement, ast.Assign) and any(
        isinstance(t, ast.Name) and t.id in ("KEYED", "UNKEYED") for t in statement.targets
    )


def test_no_rule_declares_what_no_recipe_has(analysed: Analysed) -> None:
    for rule in rules():
        definition = analysed.session.definition(rule)
        assert {*definition.keyed, *definition.unkeyed} <= set(LEAVES), rule
        assert not {*definition.keyed} & {*definition.unkeyed}, rule


# a section taken away: the stages that go with it, and what changes in the keys of those that stay
@pytest.mark.parametrize(
    ("section", "gone", "changes"),
    [
        (
            "model.pretrain",
            {"pretrain"},
            {"train": {"inputs"}, "eval_base": {"inputs"}, "eval": {"inputs"}, "quantize": {"inputs"}},
        ),
        (
            "data.dedupe",
            {"dedupe"},
            {
                "shards[0000]": {
                    "outputs",
                    "config.data.dedupe.minhash.num_perm",
                    "config.data.dedupe.minhash.ngram",
                },
                "pack[0000]": {"inputs"},
                "gate": {"inputs"},
            },
        ),
        (
            "data.dedupe.minhash",
            set(),
            {
                "shards[0000]": {"config.data.dedupe.minhash.num_perm", "config.data.dedupe.minhash.ngram"},
                "dedupe": {"config.data.dedupe.minhash.threshold"},
            },
        ),
        (
            "train.lora",
            set(),
            {
                "probe": {"config.train.lora.r", "config.train.lora.targets", "config.train.lora.base"},
                "train": {
                    "outputs",
                    "config.train.lora.r",
                    "config.train.lora.alpha",
                    "config.train.lora.dropout",
                    "config.train.lora.targets",
                    "config.train.lora.base",
                },
                "eval": {"inputs"},
                "quantize": {"inputs"},
            },
        ),
        ("eval.gate", {"gate"}, {}),
        ("quantize", {"quantize", "quark_extension"}, {}),
    ],
)
def test_a_section_that_is_absent(
    analysed: Analysed, section: str, gone: set[str], changes: dict[str, set[str]]
) -> None:
    before, after = analysed.forms(target_of("new")), analysed.forms(target_of(f"without {section}"))
    assert before.keys() - after.keys() == gone
    assert after.keys() <= before.keys()
    found = {stage: differing(before[stage], after[stage]) for stage in after}
    assert {stage: parts for stage, parts in found.items() if parts} == changes


@pytest.mark.parametrize("device", ["mi300x", "mi355x", "a100"])
def test_what_is_only_text_has_the_same_key_for_every_device(analysed: Analysed, device: str) -> None:
    cpu, gpu = analysed.forms(target_of("new")), analysed.forms(target_of(device))
    for stage, form in gpu.items():
        text = stage.partition("[")[0] in ("shards", "dedupe", "pack", "gate")
        assert (form["platform"] == cpu[stage]["platform"]) == text, stage
        if text:
            assert form == cpu[stage]
        else:
            wanted = MI300X_ENV if device.startswith("mi3") else {}
            arch = {"PYTORCH_ROCM_ARCH": "gfx950"} if device == "mi355x" else {}
            assert form["environment"] == {**wanted, **arch}


def test_one_of_the_eight_variables_changes_the_keys_of_what_runs_on_the_device(analysed: Analysed) -> None:
    before, after = analysed.forms(target_of("mi300x")), analysed.forms(target_of("mi300x env"))
    found = {stage: differing(before[stage], after[stage]) for stage in before}
    expected = {stage: {"environment", "config.hardware.env"} for stage in ON_DEVICE}
    expected["quark_extension"] = {"environment"}
    assert {stage: changes for stage, changes in found.items() if changes} == expected


def test_all_that_runs_on_a_gpu_is_refused(analysed: Analysed) -> None:
    found = {s: a.refusal and a.refusal.word for s, a in analysed.actions(target_of("gpus")).items()}
    assert {stage for stage, word in found.items() if word == "absent"} == ON_DEVICE
    gpus = {s: a.gpus for s, a in analysed.actions(target_of("gpus")).items()}
    assert gpus == {stage: 2 if stage in ON_DEVICE else 0 for stage in found}


def test_smaller_shards_are_keyed_by_their_rows(analysed: Analysed) -> None:
    whole, split = analysed.forms(target_of("new")), analysed.forms(target_of("split"))
    assert {s for s in split if s.startswith("shards")} == {"shards[0000]", "shards[0001]", "shards[0002]"}
    assert differing(split["shards[0000]"], split["shards[0001]"]) == set()  # the same two rows
    assert differing(split["shards[0000]"], split["shards[0002]"]) == {"inputs"}
    assert differing(whole["shards[0000]"], split["shards[0000]"]) == {"inputs"}
    first = analysed.graph.actions[ActionId(f"//:{target_of('split')}.shards", "0002")]
    assert first.unkeyed["first_line"] == 5


def test_the_extension_is_the_same_for_all_recipes(analysed: Analysed) -> None:
    """Nothing but toolchain and platform is in its key; quantizing is given what it compiled."""
    cpu = [name for name, recipe in BASES.items() if "quantize" in recipe and name != "gpus"]
    forms = [analysed.form(r, analysed.actions(r)["quark_extension"]) for r in map(target_of, cpu)]
    assert len(forms) > 5
    assert all(form == forms[0] for form in forms)
    assert not forms[0]["config"]
    assert not forms[0]["inputs"]
    quantize = analysed.actions(target_of("new"))["quantize"]
    assert str(quantize.accelerants_from) == f"//:{target_of('new')}.quark_extension"
