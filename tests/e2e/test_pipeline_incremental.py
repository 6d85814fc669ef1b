"""The real pipeline built again: after which change which stages run, to the last one, and why."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from tests.e2e.conftest import Workspace, b3
from tests.e2e.pipeline import MICRO, edit, evidence, row, stages, tree_bytes

TRAINED = {"train", "eval", "gate"}


def files(ws: Workspace) -> Iterator[Path]:
    """What the user has written: all but the store and the links into it."""
    for path in sorted(ws.root.rglob("*")):
        if path.relative_to(ws.root).parts[0] not in ("cache", "mxt-out"):
            yield path


def test_the_same_build_runs_nothing(micro: Workspace) -> None:
    first = micro.build(MICRO)  # a copy: all files have other inodes and times of change
    assert first.executed == set()
    assert "14 actions: 14 cached" in first.out
    assert "up to date: 14 actions in" in micro.run("build", MICRO).out  # not one is even looked up

    for path in files(micro):
        os.utime(path, (1, 1))
    assert micro.build(MICRO).executed == set()

    for path in [p for p in files(micro) if p.is_file()]:  # as a fresh checkout does
        data = path.read_bytes()
        path.unlink()
        path.write_bytes(data)
    shutil.rmtree(micro.root / "mxt-out")
    assert micro.build(MICRO).executed == set()
    assert (micro.output("recipes/micro") / "train/adapter/adapter_model.safetensors").is_file()

    moved = Workspace(micro.root.rename(micro.root.with_name("another place")), micro.home)
    assert moved.build(MICRO).executed == set()
    assert "up to date: 14 actions in" in moved.run("build", MICRO).out
    assert moved.run("verify", MICRO).code == 0


def test_a_changed_evaluation_judges_again(micro: Workspace) -> None:
    receipt = micro.output("recipes/micro") / "receipt.dsse.json"
    before = receipt.read_bytes()
    edit(micro, "    task: count\n", "    task: count\n    standard_errors: 4\n")
    assert stages(micro.build(MICRO)) == {"gate"}
    assert receipt.read_bytes() != before

    edit(micro, "  batch_size: 64\n", "  batch_size: 50\n")
    result = micro.build(MICRO)
    assert stages(result) == {"eval_base", "eval", "gate"}
    assert result.reason(f"{MICRO}.eval_base") == {"config.eval.batch_size": ("64", "50")}
    assert micro.run("verify", MICRO).code == 0

    edit(micro, "  batch_size: 50\n", "  batch_size: 64\n")
    edit(micro, "    standard_errors: 4\n", "")
    assert micro.build(MICRO).executed == set()


def test_a_changed_learning_rate_trains_again(micro: Workspace) -> None:
    adapter = micro.output("recipes/micro.train") / "adapter"
    before = tree_bytes(adapter)
    edit(micro, "  lr: 3e-3\n", "  lr: 2e-3\n")
    explained = micro.run("explain", MICRO)
    assert explained.out == (
        f"{MICRO}.train would run\n"
        "  config.train.lr: 0.003 -> 0.002\n"
        f"{MICRO}.eval would run (after what it reads)\n"
        f"  inputs.adapter: made again by {MICRO}.train, unless it makes the same bytes\n"
        f"{MICRO}.gate would run (after what it reads)\n"
        f"  inputs.tuned: made again by {MICRO}.eval, unless it makes the same bytes\n"
        "3 of 14 actions would run\n"
    )
    result = micro.build(MICRO)
    assert stages(result) == TRAINED
    assert result.reason(f"{MICRO}.train") == {"config.train.lr": ("0.003", "0.002")}
    assert set(result.reason(f"{MICRO}.eval")) == {"inputs.adapter"}
    changed = tree_bytes(adapter)
    assert changed["adapter_config.json"] == before["adapter_config.json"]
    assert changed["adapter_model.safetensors"] != before["adapter_model.safetensors"]

    lines = evidence(micro, f"{MICRO}.train", "metrics.jsonl").splitlines()
    assert [json.loads(line)["step"] for line in lines] == [4, 8, 12]
    assert max(json.loads(line)["lr"] for line in lines) <= 0.002

    edit(micro, "  lr: 2e-3\n", "  lr: 3e-3\n")
    assert micro.build(MICRO).executed == set()
    assert tree_bytes(adapter) == before


def test_what_only_the_evidence_shows_runs_nothing(micro: Workspace) -> None:
    for old, new in [
        ("  description: as small as it gets\n", "  description: another text\n"),
        ("  price_per_hour: 1.5\n", "  price_per_hour: 2.5\n"),
        ("  logging_steps: 4\n", "  logging_steps: 1\n"),
        ("  checkpoint_steps: 5\n", "  checkpoint_steps: 3\n"),
        ("    checkpoint_steps: 10\n", "    checkpoint_steps: 3\n"),
    ]:
        edit(micro, old, new)
        result = micro.build(MICRO)
        assert result.executed == set(), new
        assert set(result.finished.values()) <= {"cached"}
    # the receipt names the recipe that it stands for
    assert micro.run("verify", MICRO).out.count("recipe has changed") == 0


def test_a_new_row_runs_its_shard_and_what_learns_from_it(micro: Workspace) -> None:
    shard = "recipes/micro/rows-1.jsonl"
    text = micro.read(shard)
    packed = micro.output("recipes/micro.pack")
    before = {n: (packed / n / "packed.parquet").read_bytes() for n in ("0000", "0001", "0002")}

    # a row that the first shard has already: it is dropped, and training does not hear of it
    micro.write(shard, text + micro.read("recipes/micro/rows-0.jsonl").splitlines()[0] + "\n")
    result = micro.build(MICRO)
    assert stages(result) == {"shards[0001]", "dedupe", "pack[0001]", "gate"}  # the gate looks at all rows
    old, new = (b3(t.encode()) for t in (text, micro.read(shard)))
    assert result.reason(f"{MICRO}.shards[0001]") == {"inputs.rows": (f"file {old}", f"file {new}")}
    report = json.loads(evidence(micro, f"{MICRO}.dedupe", "report.json"))
    assert report["dropped"]["exact"] == 1
    assert (packed / "0001/packed.parquet").read_bytes() == before["0001"]

    micro.write(shard, text + row("how many is a dozen of warm coats?", "twelve"))
    result = micro.build(MICRO)
    assert stages(result) == {"shards[0001]", "dedupe", "pack[0001]", *TRAINED}
    assert set(result.reason(f"{MICRO}.train")) == {"inputs.data/0001"}
    after = {n: (packed / n / "packed.parquet").read_bytes() for n in ("0000", "0001", "0002")}
    assert {n for n in before if after[n] != before[n]} == {"0001"}


def test_a_pinned_plan_replaces_the_probe_and_trains_nothing(micro: Workspace) -> None:
    made = micro.output("recipes/micro.probe/plan.json").read_bytes()
    pinned = micro.run("plan", "pin", MICRO)
    assert pinned.code == 0, pinned.err
    assert (micro.root / "recipes/micro.plan.json").read_bytes() == made
    result = micro.build(MICRO)
    assert result.executed == set()
    assert len(result.finished) == 13
    assert f"{MICRO}.probe" not in result.finished
    assert micro.run("verify", MICRO).code == 0

    # a plan is for one shape; for another it is refused and not bent to fit
    edit(micro, "    r: 4\n", "    r: 8\n")
    refused = micro.build(f"{MICRO}.train", code=1)
    assert "plan was made for something else: shape.lora.r: plan 4, here 8" in refused.err
    assert "mxt plan pin" in refused.err

    (micro.root / "recipes/micro.plan.json").unlink()
    assert f"{MICRO}.probe would run\n  config.train.lora.r: 4 -> 8\n" in micro.run("explain", MICRO).out


def test_a_changed_pretraining_leaves_data_and_plan(micro: Workspace) -> None:
    edit(micro, "    steps: 30\n", "    steps: 20\n")
    result = micro.build(MICRO)
    assert stages(result) == {"pretrain", "eval_base", *TRAINED}
    assert result.reason(f"{MICRO}.pretrain") == {"config.model.pretrain.steps": ("30", "20")}
    assert set(result.reason(f"{MICRO}.train")) == {"inputs.model"}
