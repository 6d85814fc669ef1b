"""The tiny recipes that train all weights: continued pre-training and full fine-tuning, each struck half-way."""

from __future__ import annotations

import json

import pytest

from tests.e2e.conftest import Workspace
from tests.e2e.pipeline import assert_better, evidence, struck_in_training, tree_bytes

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
    """Every tensor changes, and nothing but the weights; the base is that of the recipe with adapters."""
    target = "//recipes:tiny_sft_full"
    files = struck_in_training(tiny_built, target)
    assert assert_better(tiny_built, target)["tuned"] > 0.9
    base = tree_bytes(tiny_built.output("recipes/tiny_sft_lora.pretrain").resolve())
    assert files.keys() == base.keys()
    before, after = (tensors(f["model/model.safetensors"]) for f in (base, files))
    assert after.keys() == before.keys()
    assert [name for name in after if after[name] == before[name]] == []
    assert json.loads(files["model/config.json"])["model_type"] == "qwen3"


def tensors(data: bytes) -> dict[str, bytes]:
    """Those of a safetensors file."""
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    begin = 8 + size
    return {
        name: data[begin + entry["data_offsets"][0] : begin + entry["data_offsets"][1]]
        for name, entry in header.items()
        if name != "__metadata__"
    }
