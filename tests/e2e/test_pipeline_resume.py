"""SIGKILL in the middle of training and of pre-training: nobody goes on writing, and the next build ends
in the bytes of an uninterrupted one."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable

import pytest

from tests.e2e.conftest import Result, Workspace, kill_tree, wait_for
from tests.e2e.pipeline import (
    MICRO,
    assert_nobody_works,
    copied,
    edit,
    evidence,
    stage_processes,
    stages,
    tree_bytes,
)

Strike = Callable[[Workspace, str, dict[str, str], random.Random], None]

pytestmark = pytest.mark.slow

# enough steps that there is time to strike between two checkpoints
LONGER = {
    "train": ("  epochs: 1\n", "  epochs: 6\n"),
    "pretrain": ("    steps: 30\n", "    steps: 400\n"),
}
EVERY = {"train": 5, "pretrain": 10}  # steps between checkpoints


@pytest.fixture(scope="module")
def calm(micro_built: Workspace, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Workspace]:
    """For each stage a workspace in which it ran its longer way without interruption."""
    made = {}
    for stage, (old, new) in LONGER.items():
        made[stage] = ws = copied(micro_built, tmp_path_factory.mktemp("calm") / stage)
        edit(ws, old, new)
        assert stages(ws.build(f"{MICRO}.{stage}")) == {stage}
    return made


def steps_saved(ws: Workspace) -> list[int]:
    """The steps of the checkpoints that are whole, oldest first."""
    return [int(p.name.rpartition("-")[2]) for p in sorted((ws.root / "cache/progress").glob("*/0*/*-*"))]


def start_until_saved(
    ws: Workspace, stage: str, env: dict[str, str], dice: random.Random
) -> subprocess.Popen[str]:
    """Start a build and let it save one to three checkpoints, then a few steps more."""
    before = max(steps_saved(ws), default=0)
    due = before + EVERY[stage] * dice.randint(1, 3)
    process = ws.start("build", f"{MICRO}.{stage}", env=env)
    try:
        wait_for(lambda: max(steps_saved(ws), default=0) >= due or process.poll() is not None, 120)
        if process.poll() is not None:
            pytest.fail(f"it was over before it could be struck: {process.communicate()[1][-2000:]}")
        time.sleep(dice.random() * 0.1)  # within the next steps, or while it writes the next checkpoint
    except BaseException:
        kill_tree(process)
        raise
    return process


def strike_mxt(ws: Workspace, stage: str, env: dict[str, str], dice: random.Random) -> None:
    """SIGKILL for mxt alone."""
    process = start_until_saved(ws, stage, env, dice)
    assert stage_processes(ws)
    kill_tree(process)
    assert_nobody_works(ws)


def strike_stage(ws: Workspace, stage: str, env: dict[str, str], dice: random.Random) -> None:
    """SIGKILL for the process that trains alone; mxt says so."""
    process = start_until_saved(ws, stage, env, dice)
    (trainer,) = stage_processes(ws)
    os.kill(trainer, signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1, err
    assert f"{stage.capitalize()} failed: killed by SIGKILL" in err
    assert "checkpoints are kept; the next build resumes" in err
    assert "Traceback" not in err
    assert_nobody_works(ws)


def resumed(result: Result, stage: str) -> bool:
    """Whether the build says that the stage went on from a checkpoint."""
    (started,) = [
        e for e in result.events if e["event"] == "action_started" and e["label"] == f"{MICRO}.{stage}"
    ]
    said = f"resuming {MICRO}.{stage}" in result.out + result.err
    assert said == bool(started["resumed"])
    return said


@pytest.mark.parametrize(
    ("stage", "strikes", "env"),
    [
        ("train", [strike_mxt, strike_stage], {}),
        ("train", [strike_mxt], {"MXT_SANDBOX": "none"}),
        ("pretrain", [strike_mxt, strike_stage], {}),
    ],
    ids=["train", "train-without-a-sandbox", "pretrain"],
)
def test_a_struck_stage_ends_in_the_same_bytes(
    micro: Workspace, calm: dict[str, Workspace], stage: str, strikes: list[Strike], env: dict[str, str]
) -> None:
    dice = random.Random(f"{stage} {env}")
    edit(micro, *LONGER[stage])
    reached = 0
    for strike in strikes:
        strike(micro, stage, env, dice)
        assert max(steps_saved(micro)) > reached
        reached = max(steps_saved(micro))

    result = micro.build(f"{MICRO}.{stage}", env=env)
    assert stages(result) == {stage}
    assert resumed(result, stage)
    ours, theirs = (tree_bytes(w.output(f"recipes/micro.{stage}").resolve()) for w in (micro, calm[stage]))
    assert any(name.endswith(".safetensors") for name in ours)
    assert ours == theirs
    assert not steps_saved(micro), "checkpoints of a finished stage are left"

    metrics, expected = (
        {line["step"]: line["loss"] for line in map(json.loads, text.splitlines())}
        for text in (evidence(w, f"{MICRO}.{stage}", "metrics.jsonl") for w in (micro, calm[stage]))
    )
    assert metrics == expected  # the whole run's, also the part before the strikes
    if stage == "train":
        assert json.loads(evidence(micro, f"{MICRO}.train", "summary.json"))["resumed_from"] == reached

    # what comes after takes it as if nothing had happened
    assert micro.build(f"{MICRO}.{stage}").executed == set()
