"""The recipes that the project ships: their facts, keys on any machine, and what is said of what is not there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mxt.loading.recipe_yaml import read_yaml
from rules._devices import MI300X_ENV
from rules._known_models import KNOWN
from rules.recipe import Schema
from tests.e2e.conftest import REPOSITORY, Workspace
from tests.e2e.pipeline import write_tiny

RECIPES = REPOSITORY / "recipes"
QKVO = ("q_proj", "k_proj", "v_proj", "o_proj")
ALL_LINEAR = (*QKVO, "gate_proj", "up_proj", "down_proj")
ULTRACHAT = "HuggingFaceH4/ultrachat_200k"
FEEDBACK = "HuggingFaceH4/ultrafeedback_binarized"


class Facts(NamedTuple):
    """What is announced of a recipe.

    length: in tokens. micro, accumulation: sequences per device and pass, and passes a step. lora: r, alpha,
    targets. budget_s: of the probe.
    """

    model: str
    data: str
    length: int
    gpus: int
    micro: int
    accumulation: int
    method: str
    lr: float
    epochs: float = 1
    lora: tuple[int, int, tuple[str, ...]] | None = None
    budget_s: float = 60
    parallel: str = "none"
    backend: str = "trl"


CATALOGUE: dict[str, Facts] = {
    "instella_3b_lora": Facts(
        "amd/Instella-3B-Instruct", "tatsu-lab/alpaca", 2048, 1, 4, 4, "sft", 2e-4, 3, (16, 32, QKVO)
    ),
    "qwen3_8b_sft_lora": Facts(
        "Qwen/Qwen3-8B", ULTRACHAT, 4096, 1, 8, 4, "sft", 1e-4, 3, (16, 32, ALL_LINEAR)
    ),
    "qwen3_8b_sft_full": Facts("Qwen/Qwen3-8B", ULTRACHAT, 4096, 1, 4, 8, "sft", 5e-6),
    "qwen3_8b_cpt": Facts(
        "Qwen/Qwen3-8B", "HuggingFaceFW/fineweb-edu", 8192, 8, 4, 4, "cpt", 1e-5, parallel="fsdp", backend="primus"
    ),
    "qwen3_30b_a3b_lora": Facts(
        "Qwen/Qwen3-30B-A3B", ULTRACHAT, 4096, 8, 2, 8, "sft", 1e-4, 2, (32, 64, QKVO), 90, "fsdp"
    ),
    "qwen3_32b_full_fsdp": Facts(
        "Qwen/Qwen3-32B", ULTRACHAT, 4096, 8, 2, 4, "sft", 3e-6, parallel="fsdp", backend="primus"
    ),
    "qwen3_32b_dpo": Facts("Qwen/Qwen3-32B", FEEDBACK, 4096, 8, 1, 8, "dpo", 5e-7, parallel="fsdp"),
    "qwen3_32b_orpo": Facts("Qwen/Qwen3-32B", FEEDBACK, 4096, 8, 1, 8, "orpo", 5e-6, parallel="fsdp"),
    "qwen3_32b_grpo": Facts("Qwen/Qwen3-32B", "openai/gsm8k", 2048, 8, 1, 8, "grpo", 5e-7, parallel="fsdp"),
    "qwen3_6_27b_lora": Facts(
        "Qwen/Qwen3.6-27B", ULTRACHAT, 8192, 8, 2, 8, "sft", 1e-4, 1, (32, 64, ALL_LINEAR), 60, "fsdp"
    ),
    "qwen3_6_35b_a3b_lora": Facts(
        "Qwen/Qwen3.6-35B-A3B", ULTRACHAT, 8192, 8, 1, 16, "sft", 1e-4, 1, (16, 32, QKVO), 120, "fsdp"
    ),
    "qwen3_vl_8b_sft": Facts(
        "Qwen/Qwen3-VL-8B-Instruct", "liuhaotian/LLaVA-Instruct-150K", 4096, 1, 4, 4, "vision_sft", 1e-4, 1,
        (16, 32, QKVO),
    ),
}  # fmt: skip


def parsed(name: str) -> dict[str, Any]:
    """The recipe, fully defaulted; absent sections are None."""
    return Schema.model_validate(read_yaml(RECIPES / f"{name}.yaml", name).value).model_dump()


def test_the_catalogue_is_whole() -> None:
    there = {p.stem for p in RECIPES.glob("*.yaml") if not p.name.startswith("tiny")}
    assert there == CATALOGUE.keys()
    assert len(there) == 12
    declared = re.findall(r'name = "(\w+)",\n *recipe = "\1.yaml"', (RECIPES / "MXTBUILD").read_text())
    assert set(declared) == {p.stem for p in RECIPES.glob("*.yaml")}


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_recipe_is_as_announced(name: str) -> None:
    recipe, facts = parsed(name), CATALOGUE[name]
    train, hardware, plan = recipe["train"], recipe["hardware"], recipe["autotune"]
    lora = train["lora"]
    assert facts == Facts(
        model=recipe["model"]["hub"]["repo"],
        data=recipe["data"]["hub"]["repo"],
        length=recipe["data"]["pack"]["max_length"],
        gpus=hardware["gpus"],
        micro=plan["micro_batch"][0],  # the first is what is taken where nothing is measured to be faster
        accumulation=train["batch_size"] // plan["micro_batch"][0] // hardware["gpus"],
        method=train["method"],
        lr=train["lr"],
        epochs=train["epochs"],
        lora=(lora["r"], lora["alpha"], lora["targets"]) if lora else None,
        budget_s=plan["budget_s"],
        parallel=train["parallel"],
        backend=train["backend"],
    )
    assert train["batch_size"] == facts.micro * facts.accumulation * facts.gpus
    assert (recipe["meta"]["seed"], plan["policy"], train["dtype"]) == (2048, "aot_only", "bfloat16")
    assert (hardware["platform"], hardware["price_per_hour"]) == ("mi300x", 1.99)
    assert hardware["env"] == MI300X_ENV
    text = (RECIPES / f"{name}.yaml").read_text()
    assert all(variable in text for variable in MI300X_ENV), "written out, so that a reader sees them"
    assert facts.model in KNOWN


def test_what_some_recipes_have_beside() -> None:
    hero = parsed("qwen3_8b_sft_lora")
    dedupe = hero["data"]["dedupe"]
    assert (dedupe["minhash"]["threshold"], dedupe["semdedup"]["threshold"]) == (0.85, 0.95)
    assert hero["data"]["pack"]["strategy"] == "bfd"
    train = hero["train"]
    assert (train["betas"], train["weight_decay"]) == ((0.9, 0.95), 0.1)
    assert (train["scheduler"], train["warmup_ratio"]) == ("cosine", 0.03)
    assert hero["eval"]["tasks"] == ("mmlu", "gsm8k", "ifeval", "humaneval")
    assert hero["quantize"]["scheme"] == "ptpc_fp8"
    serve = hero["serve"]
    assert (serve["engine"], serve["tool_parser"], serve["max_length"]) == ("vllm", "hermes", 8192)
    assert hero["publish"]["private"]
    assert hero["receipt"]["anchor"]
    assert parsed("qwen3_8b_cpt")["train"]["scheduler"] == "wsd"
    assert parsed("qwen3_32b_dpo")["train"]["dpo"] == {"beta": 0.1}
    assert parsed("qwen3_32b_orpo")["train"]["orpo"] == {"beta": 0.1}
    grpo = parsed("qwen3_32b_grpo")["train"]["grpo"]
    assert (grpo["generations"], grpo["kl"], grpo["reward"]) == (4, 0.04, "number")
    assert parsed("instella_3b_lora")["data"]["limit"] == 5000
    assert parsed("qwen3_vl_8b_sft")["model"]["kind"] == "vision_language"


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """The project's own recipes, nothing built."""
    folder = tmp_path_factory.mktemp("catalogue")
    return write_tiny(folder / "work space", folder / "home")


def test_every_recipe_shows_keys_and_marks(shipped: Workspace, tmp_path: Path) -> None:
    names = [*CATALOGUE, *(p.stem for p in RECIPES.glob("tiny*.yaml"))]
    done = shipped.run("build", "-n", *(f"//recipes:{name}" for name in names))
    assert done.code == 0, done.err
    *lines, _, count = done.out.splitlines()
    shown: dict[str, dict[str, str]] = {name: {} for name in names}
    for line in lines:
        found = re.fullmatch(r"  (\w+) +( |~)([0-9a-f]{12})  //recipes:(\w+)\.(\S+) +\((.+)\)", line)
        assert found, line
        shown[found[4]][found[5]] = found[1]
    assert f"{len(lines)} actions: " in count
    hero = shown["qwen3_8b_sft_lora"]
    assert hero["fetch_model"] == hero["fetch_data"] == "unpinned"
    assert {hero[s] for s in ("dedupe", "probe", "train", "eval_base", "eval", "quantize")} == {"absent"}
    assert {hero[s] for s in ("shards[0000]", "pack[0000]", "gate")} == {"blocked"}
    for name in CATALOGUE:
        assert shown[name]["probe"] == shown[name]["train"] == "absent", name
    for name in names:
        if name.startswith("tiny"):
            assert set(shown[name].values()) <= {"run", "later"}, name
    # keys are the same wherever they are looked at, and by whom
    other = write_tiny(tmp_path / "another place", tmp_path / "another home")
    again = other.run(
        "build", "-n", "--store", str(tmp_path / "store"), *(f"//recipes:{name}" for name in names)
    )
    assert (again.out, again.code) == (done.out, 0)


# what each recipe lacks first
FIRST = {
    "instella_3b_lora": "probe: not implemented yet: the probe on a GPU",
    "qwen3_8b_sft_lora": "quark_extension: not implemented yet: quantizing on a GPU",
    "qwen3_vl_8b_sft": "shards[0000]: not implemented yet: rows of form 'images'",
    "qwen3_32b_dpo": "shards[0000]: not implemented yet: rows of form 'preference'",
    "qwen3_32b_orpo": "shards[0000]: not implemented yet: rows of form 'preference'",
    "qwen3_32b_grpo": "shards[0000]: not implemented yet: rows of form 'prompt'",
}


@pytest.mark.parametrize("name", CATALOGUE)
def test_building_one_fails_before_anything_runs(shipped: Workspace, name: str) -> None:
    done = shipped.build(f"//recipes:{name}", code=1)
    assert done.finished == {}
    first = FIRST.get(name, "probe: not implemented yet: the probe on a GPU")
    lines = done.err.splitlines()
    assert lines[0] == f"error: //recipes:{name}.{first}"
    assert lines[-1].startswith("failed: nothing was run in ")
    assert not Path(shipped.output("recipes")).exists()


@pytest.mark.parametrize(
    ("effect", "what"),
    [
        ("serve", "serving with vllm"),
        ("publish", "publishing to the Hub"),
        ("anchor", "anchoring on eip155:8453"),
    ],
)
def test_effects_are_run_by_name_and_say_that_they_are_not_there(
    shipped: Workspace, effect: str, what: str
) -> None:
    label = f"//recipes:qwen3_8b_sft_lora.{effect}"
    done = shipped.run("run", label)
    assert done.code == 1
    assert done.err.splitlines()[0] == f"error: {label}: not implemented yet: {what}"
    assert done.err.splitlines()[-1].startswith("failed: nothing was run in ")
    built = shipped.run("build", label)
    assert (built.code, built.err.splitlines()[0]) == (
        1,
        f"error: '{label}' is an effect; it is run, not built",
    )


def test_effects_and_long_runs_are_in_no_pattern(shipped: Workspace) -> None:
    listed = shipped.run("query", "//recipes:*").out
    effects = {f"//recipes:qwen3_8b_sft_lora.{e}" for e in ("serve", "publish", "anchor")}
    assert effects <= set(listed.split())
    manual = shipped.run("query", 'attr(tags, "manual", //recipes:*)').out
    assert effects <= set(manual.split())
    # nor the recipes that take hours on a GPU: they are built by name
    built = set(re.findall(r"//recipes:(\w+)", shipped.run("build", "-n", "//...").out))
    assert built == {"tiny_sft_lora", "tiny_sft_full", "tiny_cpt", "tiny_moe_lora"}


def test_other_commands_have_something_to_say(shipped: Workspace) -> None:
    train = "//recipes:qwen3_32b_dpo.train"
    explained = shipped.run("explain", train)
    assert explained.code == 0
    assert train in explained.out
    deps = shipped.run("query", f"deps({train})").out.split()
    assert {"//recipes:qwen3_32b_dpo.fetch_model", "//recipes:qwen3_32b_dpo.pack", train} <= set(deps)
    looked = shipped.run("doctor", train)
    assert looked.code == 1
    assert re.search(
        rf"^fail +{re.escape(train)}\n +not implemented yet: training by DPO$", looked.out, re.MULTILINE
    )
    page = shipped.home / "graph.html"
    assert shipped.run("graph", "//recipes:qwen3_32b_dpo", "-o", str(page)).code == 0
    assert "not implemented yet: training by DPO" in page.read_text()
