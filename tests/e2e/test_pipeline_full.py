"""The project's own tiny recipe from nothing to a receipt."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import pytest

from tests.e2e.conftest import Workspace
from tests.e2e.pipeline import evidence

pytestmark = pytest.mark.slow
TINY = "//recipes:tiny_sft_lora"


@pytest.fixture(scope="module")
def tiny(tiny_built: Workspace) -> Workspace:
    """The tiny recipe, built."""
    return tiny_built


def test_progress_was_told_throughout(tiny: Workspace) -> None:
    events = [json.loads(line) for line in (tiny.home / "events.jsonl").read_text().splitlines()]
    progress = [e for e in events if e["event"] == "action_progress" and e["label"] == f"{TINY}.train"]
    steps = [e for e in progress if "loss" in e]
    assert len(steps) > 3
    assert {"step", "of", "loss", "tokens_per_s", "eta_s"} <= steps[-1].keys()


def test_the_gate_passes_honestly(tiny: Workspace) -> None:
    tested = tiny.run("test", TINY)
    assert tested.code == 0, tested.out
    assert "1 test: 1 passed" in tested.out
    verdict = json.loads((tiny.output("recipes/tiny_sft_lora.gate") / "verdict.json").read_text())
    assert verdict["passed"] is True
    assert verdict["rows"] >= 200
    assert verdict["shared_rows"] == 0
    assert verdict["standard_errors"] > 3
    # a base worth tuning: far above chance, which is a quarter, and far from perfect
    assert 0.35 < verdict["base"] < 0.85
    assert verdict["tuned"] > verdict["base"]

    # the numbers are those of the rows, and no row of the questions is in the training files
    scores = {}
    for stage in ("eval_base", "eval"):
        results = json.loads((tiny.output(f"recipes/tiny_sft_lora.{stage}") / "results.json").read_text())
        scores[stage] = [s["scores"]["acc"] for s in results["tasks"]["talo"]["samples"]]
    assert len(scores["eval"]) == verdict["rows"]
    assert sum(scores["eval"]) / len(scores["eval"]) == pytest.approx(verdict["tuned"])
    assert sum(scores["eval_base"]) / len(scores["eval_base"]) == pytest.approx(verdict["base"])
    trained = "".join(p.read_text() for p in sorted((tiny.root / "recipes/tiny").glob("train-*.jsonl")))
    for line in tiny.read("recipes/tiny/talo.jsonl").splitlines():
        held_out = json.loads(line)
        assert held_out["question"] not in trained
        assert held_out["choices"][held_out["label"]] not in trained


def test_the_quantized_model_loads_and_answers(tiny: Workspace) -> None:
    folder = tiny.output("recipes/tiny_sft_lora.quantize") / "model"
    script = """
        import json, sys
        from safetensors import safe_open
        from transformers import AutoModelForCausalLM, AutoTokenizer
        folder, rows = sys.argv[1:]
        with safe_open(f"{folder}/model.safetensors", "pt") as file:
            kinds = sorted({str(file.get_slice(n).get_dtype()) for n in file.keys()})
        model = AutoModelForCausalLM.from_pretrained(folder).eval()
        tokenizer = AutoTokenizer.from_pretrained(folder)
        right = 0
        for line in open(rows).read().splitlines()[:20]:
            row = json.loads(line)
            turn = [{"role": "user", "content": row["question"]}]
            ids = tokenizer.apply_chat_template(
                turn, add_generation_prompt=True, return_tensors="pt", return_dict=True
            )
            out = model.generate(**ids, max_new_tokens=40, do_sample=False)
            text = tokenizer.decode(out[0, ids["input_ids"].shape[1]:], skip_special_tokens=True)
            right += text.strip() == row["choices"][row["label"]]
        print(json.dumps({"kinds": kinds, "right": right}))
    """
    rows = tiny.root / "recipes/tiny/talo.jsonl"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script), folder, rows],
        capture_output=True,
        text=True,
        env={**tiny.env, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert "F8_E4M3" in found["kinds"]
    assert found["right"] >= 12, "of 20 questions"
    check = json.loads(evidence(tiny, f"{TINY}.quantize", "check.json"))
    assert check["reloaded_difference"] <= check["tolerance"]


def test_the_receipt_verifies_and_nothing_is_left_to_do(tiny: Workspace) -> None:
    verified = tiny.run("verify", TINY)
    assert verified.code == 0, verified.out
    actions = tiny.build(TINY).finished
    assert set(actions.values()) == {"cached"}
    again = tiny.run("build", TINY)
    assert f"up to date: {len(actions)} actions in" in again.out  # not one is even looked up
