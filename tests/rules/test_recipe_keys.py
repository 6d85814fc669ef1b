"""Every field of a recipe, changed by itself: exactly the actions whose rules declare it change their keys.

Analysis only, nothing runs. All changed recipes are targets of one package, so it is loaded once.
"""

from __future__ import annotations

import ast
import copy
import shutil
import types
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
from rules.recipe import Schema

REPOSITORY = Path(__file__).resolve().parents[2]
RULES = REPOSITORY / "rules"

# Three ways to begin a recipe; together they have all sections.
REST: dict[str, Any] = {
    "meta": {"description": "one", "seed": 1},
    "hardware": {"platform": "cpu", "price_per_hour": 1.0},
    "autotune": {"attention": ["sdpa"], "compile": ["none"], "micro_batch": [1, 2], "budget_s": 5.0},
    "train": {"lora": {"r": 4}, "lr": 1e-3, "max_steps": 10, "batch_size": 4},
    "eval": {"tasks": ["t.yaml"], "files": ["t.jsonl"], "gate": {"task": "t"}},
    "quantize": {"scheme": "ptpc_fp8"},
}
PACK = {"max_length": 64}
BASES: dict[str, dict[str, Any]] = {
    "new": {
        **REST,
        "model": {"init": {"corpus": ["a.txt"]}, "pretrain": {"steps": 10, "length": 64}},
        "data": {"files": ["rows-0.jsonl"], "pack": PACK, "dedupe": {"minhash": {}}},
    },
    "hub": {
        **REST,
        "model": {"hub": {"repo": "a/model", "revision": "0" * 40}},
        "data": {"hub": {"repo": "a/data", "revision": "0" * 40, "files": ["a.jsonl"]}, "pack": PACK},
    },
    "folder": {
        **REST,
        "model": {"path": "model"},
        "data": {"files": ["rows-0.jsonl"], "pack": PACK},
        "train": {"lr": 1e-3, "epochs": 2.0, "batch_size": 4},
        "quantize": {"scheme": "fp8"},
    },
}

# For each field a value that no base has.
OTHER: dict[str, Any] = {
    "meta.description": "two",
    "meta.seed": 2,
    "hardware.platform": "other",
    "hardware.price_per_hour": 2.0,
    "autotune.budget_s": 6.0,
    "autotune.attention": ["eager"],
    "autotune.compile": ["none", "inductor"],
    "autotune.micro_batch": [2],
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
    "model.hub.repo": "another/model",
    "model.hub.revision": "1" * 40,
    "model.path": "model2",
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
    "data.rows_per_shard": 1000,
    "data.on_bad_rows": "skip",
    "data.max_row_bytes": 5000,
    "data.chat_template": "chat.jinja",
    "data.dedupe.exact": False,
    "data.dedupe.minhash.threshold": 0.5,
    "data.dedupe.minhash.num_perm": 64,
    "data.dedupe.minhash.ngram": 3,
    "data.pack.max_length": 32,
    "data.pack.strategy": "none",
    "data.pack.overlong": "drop",
    "train.lora.r": 8,
    "train.lora.alpha": 8,
    "train.lora.dropout": 0.5,
    "train.lora.targets": ["q_proj"],
    "train.lr": 2e-3,
    "train.epochs": 3.0,
    "train.max_steps": 20,
    "train.batch_size": 8,
    "train.betas": [0.8, 0.9],
    "train.weight_decay": 0.1,
    "train.scheduler": "linear",
    "train.warmup_ratio": 0.5,
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
    "eval.gate.task": "u",
    "eval.gate.metric": "acc_norm",
    "eval.gate.min_rows": 250,
    "eval.gate.standard_errors": 4.0,
    "quantize.scheme": "fp8",
    "quantize.exclude": ["lm_head", "*q_proj"],
    "quantize.calibration_rows": 8,
}
# Fields for which this version knows one value.
SINGLE = {"autotune.policy": "aot_only", "train.method": "sft", "train.optimizer": "adamw"}

# Fields that finetune.mxt turns into inputs, outputs or a platform: the actions whose keys change beside
# those whose rules declare the field, and which parts of the keys.
GRAPH: dict[str, tuple[set[str], set[str]]] = {
    "hardware.platform": ({"*"}, {"platform"}),
    "model.init.corpus": ({"init_model", "pretrain"}, {"inputs"}),
    "model.path": ({"pack", "probe", "train", "eval_base"}, {"inputs"}),  # the others take the tuned one
    "data.files": ({"shards"}, {"inputs"}),
    "data.chat_template": ({"pack"}, {"inputs"}),
    "eval.tasks": ({"eval_base", "eval"}, {"inputs"}),
    "eval.files": ({"eval_base", "eval"}, {"inputs"}),
    "quantize.scheme": ({"quantize"}, {"inputs"}),  # fp8 is calibrated on the data
}


def leaves(section: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """The dotted names of all fields that are no sections."""
    for name, field in section.model_fields.items():
        inner = [a for a in parts(field.annotation) if isinstance(a, type) and issubclass(a, BaseModel)]
        if inner:
            yield from leaves(inner[0], f"{prefix}{name}.")
        else:
            yield prefix + name


def parts(annotation: Any) -> list[Any]:
    """The members of `A | B`."""
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        return list(typing.get_args(annotation))
    return [annotation]


LEAVES = tuple(leaves(Schema))


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


def base_for(field: str) -> str:
    """The first base in which the field can be changed alone."""
    for name, recipe in BASES.items():
        try:
            if value_of(recipe, field) is None and field in ("train.epochs", "train.max_steps"):
                continue  # these two exclude each other
            if value_of(recipe, field) is None and field in ("model.path", "data.files"):
                continue
            if field == "quantize.calibration_rows" and recipe["quantize"]["scheme"] != "fp8":
                continue
        except LookupError:
            continue
        return name
    raise AssertionError(f"no base has '{field}'")


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
    for name in ("a.txt", "b.txt", "t.yaml", "u.yaml", "t.jsonl", "u.jsonl", "chat.jinja"):
        (root / name).write_text(name)
    for number in range(2):
        (root / f"rows-{number}.jsonl").write_text(f'{{"text": "{number}"}}\n' * 5)
    for name in ("model", "model2"):
        (root / name).mkdir()
        (root / name / "config.json").write_text(name)
    recipes = dict(BASES)
    for field, value in OTHER.items():
        base = BASES[base_for(field)]
        if field == "eval.gate.task":
            base = changed(base, "eval.tasks", OTHER["eval.tasks"])
            recipes["two_tasks"] = base
        recipes[field] = changed(base, field, value)
    for section, base_name in ABSENT.items():
        recipes[f"without {section}"] = changed(BASES[base_name], section, None)
    recipes["split"] = changed(BASES["new"], "data.rows_per_shard", 2)
    text = (REPOSITORY / "MXTBUILD").read_text()
    text += 'platform(name = "other", arch = "x86_64", threads = 2)\n'
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
        graph = session.analyse([f"//:{target_of(name)}" for name in recipes])
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
    for field, value in OTHER.items():
        base = BASES[base_for(field)]
        if field == "eval.gate.task":
            base = changed(base, "eval.tasks", OTHER["eval.tasks"])
        assert value_of(changed(base, field, value), field) != value_of(base, field), field


@pytest.mark.parametrize("field", OTHER)
def test_a_field_changes_the_keys_of_those_who_declare_it(analysed: Analysed, field: str) -> None:
    base = "two_tasks" if field == "eval.gate.task" else base_for(field)
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
        if field == "hardware.platform":
            changes.add("environment")
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
        assert reads(rule, field), f"rules/{rule}.py declares '{field}' and never reads it"


@pytest.mark.parametrize("field", SINGLE)
def test_a_field_of_one_value_refuses_others_and_is_keyed(analysed: Analysed, field: str) -> None:
    assert value_of(BASES["new"], field) == SINGLE[field]
    with pytest.raises(ValidationError, match=field.rpartition(".")[2]):
        Schema.model_validate(changed(BASES["new"], field, "another"))
    stage = {"autotune": "probe", "train": "train"}[field.partition(".")[0]]
    assert field in analysed.declared(stage, "keyed")


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
                "probe": {"config.train.lora.r", "config.train.lora.targets"},
                "train": {
                    "outputs",
                    "config.train.lora.r",
                    "config.train.lora.alpha",
                    "config.train.lora.dropout",
                    "config.train.lora.targets",
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
    forms = [analysed.form(r, analysed.actions(r)["quark_extension"]) for r in map(target_of, BASES)]
    assert forms[0] == forms[1] == forms[2]
    assert not forms[0]["config"]
    assert not forms[0]["inputs"]
    quantize = analysed.actions(target_of("new"))["quantize"]
    assert str(quantize.accelerants_from) == f"//:{target_of('new')}.quark_extension"
