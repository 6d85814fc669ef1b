"""finetune(): which stages a recipe's sections make and how they are wired, seen through the real command."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import REPOSITORY, Workspace
from tests.rules.fake_hub import COMMIT, fake_hub

INIT = {"init": {"corpus": ["corpus.txt"], "vocab_size": 300}}
DATA = {"files": ["rows-*.jsonl"], "pack": {"max_length": 64}}
TRAIN = {"lr": 1e-3, "epochs": 1, "lora": {}}
WHOLE: dict[str, Any] = {
    "model": {**INIT, "pretrain": {"steps": 3}},
    "data": {**DATA, "dedupe": {}},
    "autotune": {},
    "train": TRAIN,
    "eval": {"tasks": ["talo.yaml"], "files": ["talo.jsonl"], "gate": {"task": "talo"}},
    "quantize": {},
}


@pytest.fixture
def ws(tmp_path: Path) -> Workspace:
    """A workspace of its own: the platforms of the repository, no rules, two shards of rows."""
    made = Workspace(tmp_path / "work space", tmp_path / "home")
    made.write("MXTBUILD", (REPOSITORY / "MXTBUILD").read_text())
    made.write("toolchains/cpu-py311.lock.json", (REPOSITORY / "toolchains/cpu-py311.lock.json").read_text())
    made.write(
        "p/MXTBUILD",
        'load("@mxt//rules:finetune.mxt", "finetune")\nfinetune(name = "x", recipe = "x.yaml")\n',
    )
    for name in ("corpus.txt", "talo.yaml", "talo.jsonl"):
        made.write(f"p/{name}", "text\n")
    made.write("p/m/config.json", "{}")
    for i in range(2):
        made.write(f"p/rows-{i}.jsonl", f'{{"text": "row {i}"}}\n' * 3)
    return made


def stages(ws: Workspace, recipe: dict[str, Any], target: str = "//p:x") -> dict[str, list[str]]:
    """Stage -> the names of its actions, of all that building the target would reach."""
    ws.write("p/x.yaml", json.dumps(recipe))
    done = ws.run("build", "-n", target)
    assert done.code == 0, done.err
    found: dict[str, list[str]] = {}
    for stage, action in re.findall(r"//p:x\.(\w+)(?:\[(\w+)\])? +\(", done.out):
        found.setdefault(stage, []).append(action)
    return found


def test_a_whole_recipe_makes_every_stage(ws: Workspace) -> None:
    once = ["init_model", "pretrain", "dedupe", "probe", "train", "eval_base", "eval", "gate", "quantize"]
    once.append("quark_extension")
    wanted = {s: [""] for s in once} | {s: ["0000", "0001"] for s in ("shards", "pack")}
    assert stages(ws, WHOLE) == wanted


HUB_MODEL = {"hub": {"repo": "a/b", "revision": COMMIT}}
HUB_DATA = {"hub": {"repo": "a/b", "revision": COMMIT, "files": ["r.jsonl"]}, "pack": {"max_length": 64}}
BASE_ONLY = {"eval": {"tasks": ["mmlu"], "revisions": {"cais/mmlu": COMMIT}}}


@pytest.mark.parametrize(
    ("absent", "changes", "wanted"),
    [
        ("quantize", {}, "init_model pretrain shards dedupe pack probe train eval_base eval gate"),
        ("eval quantize", {}, "init_model pretrain shards dedupe pack probe train"),
        ("data train autotune quantize", BASE_ONLY, "init_model pretrain eval_base"),
        ("eval quantize", {"model": INIT, "data": DATA}, "init_model shards pack probe train"),
        ("train autotune eval quantize", {"model": {"path": "m"}}, "shards dedupe pack"),
        ("data train autotune eval", {"model": {"path": "m"}}, "quantize quark_extension"),
        ("eval quantize", {"model": HUB_MODEL}, "fetch_model shards dedupe pack probe train"),
        ("eval quantize", {"data": HUB_DATA}, "init_model pretrain fetch_data shards pack probe train"),
    ],
)
def test_a_section_that_is_absent_has_no_stage(
    ws: Workspace, absent: str, changes: dict[str, Any], wanted: str
) -> None:
    recipe = {k: v for k, v in {**WHOLE, **changes}.items() if k not in absent.split()}
    assert set(stages(ws, recipe)) == set(wanted.split())


def test_a_pinned_plan_takes_the_probes_place(ws: Workspace) -> None:
    ws.write("p/x.plan.json", "{}")
    assert "probe" not in stages(ws, WHOLE)


def test_neither_data_nor_probe_wait_for_pretraining(ws: Workspace) -> None:
    for stage in ("pack", "probe"):
        assert "pretrain" not in stages(ws, WHOLE, f"//p:x.{stage}")
    for stage in ("train", "eval_base", "eval", "quantize"):
        assert "pretrain" in stages(ws, WHOLE, f"//p:x.{stage}")


def test_full_training_replaces_the_model(ws: Workspace) -> None:
    recipe = {**WHOLE, "train": {"lr": 1e-3, "epochs": 1}}
    ws.write("p/x.yaml", json.dumps(recipe))
    out = ws.run("build", "-n", "//p:x.quantize").out
    assert re.search(r"//p:x\.quantize +\(reads //p:x\.train\)", out), out


def test_rows_per_shard_cuts_files(ws: Workspace) -> None:
    recipe = {**WHOLE, "data": {**DATA, "rows_per_shard": 2}}
    assert stages(ws, recipe, "//p:x.pack")["shards"] == ["0000", "0001", "0002", "0003"]


def test_a_device_without_a_toolchain_takes_one_of_your_own(ws: Workspace) -> None:
    """Radeon and MI250X: what they run in is the workspace's to declare."""
    hardware = {"platform": "gfx1201", "gpus": 2}
    recipe = {**WHOLE, "hardware": hardware, "train": {**TRAIN, "parallel": "ddp"}}
    ws.write("p/x.yaml", json.dumps(recipe))
    done = ws.run("build", "-n", "//p:x")
    assert (done.code, "nothing is known to run on 'gfx1201'" in done.err) == (1, True)
    build = 'load("@mxt//rules:finetune.mxt", "finetune")\n'
    build += 'finetune(name = "x", recipe = "x.yaml", toolchain = "//:radeon")\n'
    ws.write("p/MXTBUILD", build)
    root = (REPOSITORY / "MXTBUILD").read_text()
    root += 'toolchain(name = "radeon", image = "rocm/pytorch:x", digest = "unpinned")\n'
    ws.write("MXTBUILD", root)
    assert "train" in stages(ws, recipe)


def test_rows_of_one_shard_stop_and_say_where(ws: Workspace) -> None:
    ws.write("p/x.yaml", json.dumps({**WHOLE, "data": {**DATA, "rows_per_shard": 2}}))
    ws.write("p/rows-1.jsonl", '{"text": "a"}\n{"text": "b"}\n{"text": ""}\n')
    done = ws.build("//p:x.shards", "-k", code=1)
    assert "p/rows-1.jsonl:3: field 'text' is empty" in done.err
    assert list(done.finished.values()).count("executed") == 3


def test_hub_files_reach_the_shards_and_a_missing_network_is_said(ws: Workspace) -> None:
    ws.write("p/x.yaml", json.dumps({**WHOLE, "data": HUB_DATA}))
    with fake_hub() as hub:
        hub.repos[("dataset", "a/b")] = {"r.jsonl": b'{"text": "from afar"}\n'}
        reach = {"HF_ENDPOINT": hub.endpoint, "HF_HUB_DISABLE_XET": "1"}
        hub.failing = True
        failed = ws.build("//p:x.shards", code=1, env=reach)
        assert "the Hub failed" in failed.err
        hub.failing = False
        ws.build("//p:x.shards", env=reach)
    rows = ws.output("p/x.shards/0000/rows.jsonl")
    assert rows.read_text() == '{"text":"from afar"}\n'
    # what came from the Hub stays, so nobody asks it again
    assert set(ws.build("//p:x.shards").finished.values()) <= {"cached"}
