"""Quantizing: FP8 weights that load again and compute the same, in the same bytes each time."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.rules import tiny_model
from tests.rules.conftest import Tiny
from tests.rules.stage import run_stage

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="Quark compiles a C++ extension")


@pytest.fixture(scope="module")
def extensions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compiled once for all tests, as the engine keeps it among the accelerants."""
    return tmp_path_factory.mktemp("accelerants")


def job(tiny: Tiny, scheme: str, accelerants: Path, **changes: Any) -> dict[str, Any]:
    return {
        "config": {
            "quantize.scheme": scheme,
            "quantize.exclude": ["lm_head"],
            "quantize.calibration_rows": 4,
            "data.pack.max_length": 64,
            **changes,
        },
        "platform": tiny_model.PLATFORM,
        "inputs": {"model": tiny.model, "data": [tiny.packed] if scheme == "fp8" else []},
        "outputs": {"model": "model/"},
        "accelerants": accelerants,
    }


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["ptpc_fp8", "fp8"])
def test_the_reload_computes_the_same_and_calibration_repeats(
    tiny: Tiny, tmp_path: Path, extensions: Path, scheme: str
) -> None:
    from safetensors import safe_open

    runs = []
    for name in ("one", "two") if scheme == "fp8" else ("one",):
        done = run_stage("rules.quantize:quantize", tmp_path / name, job(tiny, scheme, extensions))
        assert done.returncode == 0, done.stderr
        runs.append({p.name: p.read_bytes() for p in (tmp_path / name / "model").iterdir()})
    assert runs[0] == runs[-1]
    assert set(runs[0]) == {p.name for p in tiny.model.iterdir()}
    assert all(str(tmp_path).encode() not in data for data in runs[0].values())
    check = json.loads((tmp_path / "one/evidence/check.json").read_text())
    assert check["reloaded_difference"] <= check["tolerance"]
    assert 0 < check["quantization_difference"] < 0.2
    assert 0 < check["mean_drift"] <= check["drift_allowed"]
    assert check["quantized_weights"] == 14  # seven linear layers in each of two
    assert "g++" in check["compiler"]["version"]
    # rows share input scales in Quark's simulation of ptpc_fp8 only, and the evidence says how much
    assert (check["simulation_batch_difference"] > 1e-3) == (scheme == "ptpc_fp8")
    assert check["calibration_rows"] == (4 if scheme == "fp8" else 0)
    with safe_open(tmp_path / "one/model/model.safetensors", "pt") as weights:
        types = {name: weights.get_slice(name).get_dtype() for name in weights.keys()}  # noqa: SIM118
    assert types["model.layers.0.mlp.up_proj.weight"] == "F8_E4M3"
    assert types["lm_head.weight"] == "F32"
    config = json.loads(runs[0]["config.json"])["quantization_config"]
    assert config["quant_method"] == "quark"
    assert config["exclude"] == ["lm_head"]
    # a process that was killed while it compiled leaves this behind; torch would wait for it for ever
    (next(extensions.glob("extensions/quark*")) / "lock").touch()


@pytest.mark.slow
def test_without_data_or_with_an_unknown_layer_it_says_so(
    tiny: Tiny, tmp_path: Path, extensions: Path
) -> None:
    work = job(tiny, "fp8", extensions)
    work["inputs"]["data"] = []
    done = run_stage("rules.quantize:quantize", tmp_path / "one", work)
    assert done.returncode == 1
    assert "scheme 'fp8' measures input scales on data" in done.stderr
    work = job(tiny, "ptpc_fp8", extensions, **{"quantize.exclude": ["lm_hed"]})
    done = run_stage("rules.quantize:quantize", tmp_path / "two", work)
    assert done.returncode == 1
    assert "no linear layer is named 'lm_hed' (quantize.exclude), did you mean 'lm_head'?" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_model_without_a_quantized_layer_is_no_result(tiny: Tiny, tmp_path: Path, extensions: Path) -> None:
    work = job(tiny, "ptpc_fp8", extensions, **{"quantize.exclude": ["*"]})
    done = run_stage("rules.quantize:quantize", tmp_path, work)
    assert done.returncode == 1
    assert "the result holds no quantized layer" in done.stderr


@pytest.mark.slow
def test_experts_are_quantized_each_and_none_is_left_without_a_scale(
    mixture: Tiny, tmp_path: Path, extensions: Path
) -> None:
    """Calibrated on one row, which cannot reach all of them."""
    from safetensors import safe_open

    from mxt.errors import StageError
    from rules._runtime import load_model

    work = job(mixture, "fp8", extensions, **{"quantize.calibration_rows": 1})
    done = run_stage("rules.quantize:quantize", tmp_path, work)
    assert done.returncode == 0, done.stderr
    check = json.loads((tmp_path / "evidence/check.json").read_text())
    assert check["reloaded_difference"] <= check["tolerance"]
    assert check["quantized_weights"] == 2 * (4 + 4 * 3)  # attention, and three matrices of each expert
    assert check["quantized_part_of_experts"] == 1
    assert 0.3 < check["quantized_part"] < 1
    with safe_open(tmp_path / "model/model.safetensors", "pt") as weights:
        kinds = {name: weights.get_slice(name).get_dtype() for name in weights.keys()}  # noqa: SIM118
        scales = {
            n: float(weights.get_tensor(n))
            for n in kinds
            if ".experts." in n and n.endswith("up_proj.input_scale")
        }
    assert kinds["model.layers.1.mlp.experts.3.down_proj.weight"] == "F8_E4M3"
    assert kinds["model.layers.1.mlp.gate.weight"] == "F32"  # the router
    assert len(scales) == 8
    assert all(s < 0.5 for s in scales.values())  # 1.0 is what no row reached
    assert len({s for n, s in scales.items() if "layers.0." in n}) == 1
    with pytest.raises(StageError, match="is a quantized mixture of experts, which transformers would load"):
        load_model(tmp_path / "model")


def test_experts_that_stay_large_are_said(tmp_path: Path) -> None:
    from mxt.rule import Run
    from rules.quantize import _tell_experts

    run = Run(evidence=tmp_path)
    _tell_experts(run, 1.0)
    assert not (tmp_path / "panels.json").exists()
    _tell_experts(run, 0.25)
    (panel,) = json.loads((tmp_path / "panels.json").read_text())
    assert panel["title"] == (
        "Quantization: 75% of the experts' weights are as large as before (quantize.exclude)"
    )


def test_what_is_compared() -> None:
    """Rows together and alone must both be as they were; only Quark's simulation mixes the rows."""
    import torch

    from rules.quantize import DRIFT, PROBE_ROWS, TOLERANCE, compare, probe_rows

    rows = probe_rows(50)
    assert rows.shape[0] == PROBE_ROWS > 1
    assert not torch.equal(rows[0], rows[1])
    logits = torch.ones(2, 4, 8)
    same = (logits, logits[:1])
    found = compare(same, same, same)
    assert (found["reloaded_difference"], found["mean_drift"], found["simulation_batch_difference"]) == (
        0,
        0,
        0,
    )
    second = logits.clone()
    second[1] += 0.1
    assert compare(same, same, (second, logits[:1]))["reloaded_difference"] > TOLERANCE
    alone = compare(same, same, (logits, second[1:]))
    assert alone["reloaded_difference"] > TOLERANCE
    assert alone["simulation_batch_difference"] == pytest.approx(0.1)
    assert compare(same, (logits * 1.5, logits[:1]), same)["mean_drift"] > DRIFT


@pytest.mark.slow
def test_the_extension_is_compiled_for_all(tmp_path: Path, extensions: Path) -> None:
    task: dict[str, Any] = {"outputs": {"stamp": "stamp.json"}, "accelerants": extensions}
    done = run_stage("rules.quark_extension:build", tmp_path, task)
    assert done.returncode == 0, done.stderr
    assert set(json.loads((tmp_path / "stamp.json").read_text())) == {"amd-quark", "torch"}
    assert next(extensions.glob("extensions/quark*/*.so"))
    assert "g++" in json.loads((tmp_path / "evidence/compiler.json").read_text())["version"]
