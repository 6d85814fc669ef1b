"""The tiny recipes that train all weights: continued pre-training and full fine-tuning, each struck half-way."""

from __future__ import annotations

import json

import pytest

from tests.e2e.conftest import Workspace
from tests.e2e.pipeline import assert_better, evidence, struck_in_training

pytestmark = pytest.mark.slow


def test_continued_pretraining_teaches_a_dialect(tiny_built: Workspace) -> None:
    target = "//recipes:tiny_cpt"
    files = struck_in_training(tiny_built, target)
    assert {"model/model.safetensors", "model/tokenizer.json"} <= files.keys()
    verdict = assert_better(tiny_built, target)
    assert 0.15 < verdict["base"] < 0.4, "which knows nothing of it and guesses: a quarter"
    assert verdict["tuned"] > 0.8

    report = json.loads(evidence(tiny_built, f"{target}.pack", "report.json", "0000"))
    assert report["split"] > 50, "stories longer than a sequence"
    assert report["dropped"] == {}
    assert report["documents"] >= report["rows"] + report["split"]
    lines = evidence(tiny_built, f"{target}.train", "metrics.jsonl").splitlines()
    rates = [json.loads(line)["lr"] for line in lines]  # of every tenth of 131 steps
    assert rates[:10] == [max(rates)] * 10, "stable"
    assert rates[-1] < max(rates) / 10


def test_full_fine_tuning(tiny_built: Workspace) -> None:
    files = struck_in_training(tiny_built, "//recipes:tiny_sft_full")
    assert "model/model.safetensors" in files
    verdict = assert_better(tiny_built, "//recipes:tiny_sft_full")
    assert verdict["tuned"] > 0.9
