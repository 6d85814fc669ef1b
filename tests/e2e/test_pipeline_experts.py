"""A mixture of experts from nothing to a receipt: struck while it trains, better than its base, quantized."""

from __future__ import annotations

import json

import pytest

from tests.e2e.conftest import Workspace
from tests.e2e.pipeline import assert_better, evidence, struck_in_training

pytestmark = pytest.mark.slow
TARGET = "//recipes:tiny_moe_lora"


def test_a_mixture_of_experts(tiny_built: Workspace) -> None:
    """Adapters on attention and on every expert; merged, judged and quantized."""
    files = struck_in_training(tiny_built, TARGET)
    config = json.loads(files["adapter/adapter_config.json"])
    assert config["target_modules"] == ["k_proj", "o_proj", "q_proj", "v_proj"]
    assert config["target_parameters"] == ["experts.down_proj", "experts.gate_up_proj"]
    verdict = assert_better(tiny_built, TARGET)
    assert 0.35 < verdict["base"] < 0.85
    assert verdict["tuned"] > 0.9

    result = tiny_built.build(TARGET)
    assert result.executed == {f"{TARGET}.quantize"}
    check = json.loads(evidence(tiny_built, f"{TARGET}.quantize", "check.json"))
    assert check["reloaded_difference"] <= check["tolerance"]
    assert check["mean_drift"] <= check["drift_allowed"]
    assert check["quantized_part_of_experts"] == 1
    assert check["quantized_part"] > 0.8
    assert tiny_built.run("verify", TARGET).code == 0
