"""The probe: what may win, what must not, and that timings alone decide nothing but the plan."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import pytest

from mxt.action.canonical import dump
from mxt.errors import StageError
from rules._plan import plan_form, read_plan, write_plan
from rules._probe.candidates import Candidate, enumerate_candidates
from rules._probe.choose import ENOUGH, TIE, Measurement, choose, cost, median, p95
from rules._probe.legality import memory_needed, why_illegal
from rules._probe.measure import LAST_COMPILE, LEAST_ROUNDS, _Watcher
from tests.rules import tiny_model
from tests.rules.conftest import Tiny
from tests.rules.stage import run_stage

RECIPE: dict[str, Any] = {
    "meta.seed": 7,
    "autotune.policy": "aot_only",
    "autotune.budget_s": 8.0,
    "autotune.attention": ["sdpa", "eager"],
    "autotune.compile": ["none", "inductor"],
    "autotune.micro_batch": [1, 2, 3],
    "autotune.steps": 20,
    "data.pack.max_length": 64,
    "train.lora.r": 4,
    "train.lora.targets": ["q_proj", "v_proj", "down_proj"],
    "train.max_steps": None,
    "train.batch_size": 4,
    "train.determinism": "strict",
    "train.dtype": "float32",
}
SHAPE: dict[str, Any] = {
    "model": {
        "model_type": "qwen3",
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151936,
        "tie_word_embeddings": False,
    },
    "max_length": 4096,
    "batch_size": 8,
    "dtype": "bfloat16",
    "determinism": "strict",
    "lora": {"r": 16, "targets": ["q_proj"]},
}
SDPA, EAGER = Candidate("sdpa", "none", 4), Candidate("eager", "none", 4)
COMPILED = Candidate("sdpa", "inductor", 4)


def timed(
    candidate: Candidate, seconds: float, compile_s: float = 0.0, reason: str | None = None
) -> Measurement:
    return Measurement(candidate, [seconds] * 5, compile_s, reason)


def winner(*measurements: Measurement, steps: int = 1000) -> Candidate | None:
    return choose(measurements, 8, steps)[0]


def test_the_cheapest_wins() -> None:
    assert winner(timed(SDPA, 0.2), timed(EAGER, 0.1)) == EAGER


def test_ties_go_to_the_fixed_order() -> None:
    assert winner(timed(SDPA, 0.1 * (1 + TIE) - 1e-9), timed(EAGER, 0.1)) == SDPA
    assert winner(timed(SDPA, 0.1 * (1 + TIE) + 1e-6), timed(EAGER, 0.1)) == EAGER


def test_noise_below_the_tie_never_flips_the_choice() -> None:
    rng = random.Random(1)
    for _ in range(300):
        noisy = [timed(c, 0.1 * rng.uniform(1, 1 + TIE)) for c in (SDPA, EAGER)]
        assert winner(*noisy) == SDPA


def test_distorted_timings_choose_another_and_change_nothing_else() -> None:
    """Whatever clock a machine has, the decisions are one candidate's, whole, or none's."""
    rng = random.Random(2)
    candidates = enumerate_candidates(RECIPE)
    for _ in range(300):
        measurements = [
            Measurement(
                c,
                [rng.lognormvariate(0, 3) for _ in range(rng.randrange(6))],
                rng.expovariate(0.1),
                "illegal" if rng.random() < 0.3 else None,
            )
            for c in candidates
        ]
        chosen, rows = choose(measurements, 4, rng.randrange(1, 10**6))
        usable = [m.candidate for m in measurements if m.reason is None and m.samples]
        assert (chosen in usable) if usable else chosen is None
        assert sum(row["chosen"] for row in rows) == (1 if usable else 0)
        assert len(rows) == len(candidates)


def test_one_outlier_does_not_decide() -> None:
    assert winner(Measurement(SDPA, [0.1, 0.1, 0.1, 9.0]), timed(EAGER, 0.12)) == SDPA


def test_compiling_must_pay_within_the_run() -> None:
    compiled = timed(COMPILED, 0.05, compile_s=60)
    assert winner(timed(SDPA, 0.1), compiled, steps=100) == SDPA
    assert winner(timed(SDPA, 0.1), compiled, steps=10_000) == COMPILED
    assert cost(compiled, 8, 600) == pytest.approx(0.05 * 2 + 0.1)


def test_what_is_wrong_or_unmeasured_cannot_win() -> None:
    assert winner(timed(SDPA, 0.001, reason="wrong gradient"), timed(EAGER, 1.0)) == EAGER
    assert winner(Measurement(SDPA), Measurement(EAGER)) is None


def test_a_step_is_as_many_micro_batches_as_it_takes() -> None:
    small, large = Candidate("sdpa", "none", 1), Candidate("sdpa", "none", 8)
    assert winner(timed(small, 0.02), timed(large, 0.1)) == large  # 0.16 against 0.1


def test_order_of_preference_is_the_recipes() -> None:
    names = [
        c.name for c in enumerate_candidates({**RECIPE, "autotune.attention": ["eager", "sdpa", "eager"]})
    ]
    assert names[:4] == ["eager/none/1", "eager/none/2", "eager/none/3", "sdpa/none/1"]
    assert len(names) == 12


def test_median_and_p95() -> None:
    assert median([3, 1, 2]) == 2
    assert median([4, 1, 2, 3]) == 2.5
    assert p95(list(range(1, 101))) == 95
    assert p95([7]) == 7


@pytest.mark.parametrize(
    ("candidate", "memory", "compiler", "reason"),
    [
        (Candidate("sdpa", "none", 2), 1 << 40, None, None),
        (Candidate("sdpa", "none", 3), 1 << 40, None, "micro_batch 3 does not divide batch_size 8"),
        (Candidate("flash", "none", 2), 1 << 40, None, "attention 'flash' does not exist on a CPU"),
        (Candidate("sdpa", "inductor", 2), 1 << 40, None, "no g++ on PATH"),
        (Candidate("sdpa", "inductor", 2), 1 << 40, "/usr/bin/g++", None),
        (Candidate("eager", "none", 8), 64 << 30, None, "a step needs about"),
    ],
)
def test_legality(candidate: Candidate, memory: int, compiler: str | None, reason: str | None) -> None:
    found = why_illegal(candidate, SHAPE, memory, compiler)
    assert found is None if reason is None else reason in str(found)


def test_memory_grows_with_what_it_depends_on() -> None:
    base = memory_needed(Candidate("sdpa", "none", 1), SHAPE)
    assert 40e9 < base < 50e9  # 8 billion weights of two bytes, and 25 GB for a sequence of 4096
    assert memory_needed(Candidate("sdpa", "none", 2), SHAPE) > base
    assert memory_needed(Candidate("eager", "none", 1), SHAPE) > base
    assert memory_needed(Candidate("sdpa", "none", 1), {**SHAPE, "lora": None}) > 2 * base


def test_experts_take_memory_for_all_and_activations_for_some() -> None:
    """Qwen3-30B-A3B: 30.5 billion weights."""
    sizes = {
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "num_hidden_layers": 48,
        "num_key_value_heads": 4,
    }
    experts = {"num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768}
    shape = {**SHAPE, "model": {**SHAPE["model"], **sizes, **experts}, "max_length": 1}
    assert memory_needed(Candidate("sdpa", "none", 1), shape) / 2 == pytest.approx(30.5e9, rel=0.02)
    longer = memory_needed(Candidate("sdpa", "none", 1), {**shape, "max_length": 4096})
    assert 15e9 < longer - memory_needed(Candidate("sdpa", "none", 1), shape) < 25e9


@pytest.mark.slow
def test_the_probe_measures_and_writes_decisions_only(tiny: Tiny, tmp_path: Path) -> None:
    job = {
        "config": RECIPE,
        "platform": tiny_model.PLATFORM,
        "inputs": {"model": tiny.model},
        "outputs": {"plan": "plan.json"},
    }
    done = run_stage("rules.probe:probe", tmp_path, job)
    assert done.returncode == 0, done.stderr
    data = (tmp_path / "plan.json").read_bytes()
    plan = json.loads(data)
    assert dump(plan) == data
    assert set(plan) == {"version", "platform", "versions", "shape", "decisions"}
    assert plan["decisions"]["micro_batch"] * plan["decisions"]["gradient_accumulation"] == 4
    assert (
        plan["shape"]["model"]["vocab_size"]
        == json.loads((tiny.model / "config.json").read_text())["vocab_size"]
    )
    rows = {
        r["candidate"]: r for r in json.loads((tmp_path / "evidence/timings.json").read_text())["candidates"]
    }
    assert len(rows) == 12
    for name, row in rows.items():
        assert ("reason" in row) != ("micro_batch_s_median" in row), name  # measured, or it says why not
    assert "does not divide" in rows["sdpa/none/3"]["reason"]
    for name in ("sdpa/none/1", "eager/none/1", "sdpa/none/2", "eager/none/2"):
        assert rows[name]["samples"] >= 3
        assert rows[name]["micro_batch_s_median"] > 0
        assert ("micro_batch_s_p95" in rows[name]) == (rows[name]["samples"] >= ENOUGH)
    # twenty steps take no second: no compiler can pay, and the probe does not wait for it
    assert "compil" in rows["sdpa/inductor/2"]["reason"]


def test_a_budget_that_is_over_at_once_still_gives_a_plan(tiny: Tiny, tmp_path: Path) -> None:
    """As on a slow machine: what was measured late is better than no build."""
    config = {**RECIPE, "autotune.budget_s": 0.5, "autotune.attention": ["sdpa"], "autotune.micro_batch": [2]}
    task = {
        "config": {**config, "autotune.compile": ["none"]},
        "platform": tiny_model.PLATFORM,
        "inputs": {"model": tiny.model},
        "outputs": {"plan": "plan.json"},
    }
    done = run_stage("rules.probe:probe", tmp_path / "late", task)
    assert done.returncode == 0, done.stderr
    plan = json.loads((tmp_path / "late/plan.json").read_text())
    assert plan["decisions"]["micro_batch"] == 2


@pytest.mark.parametrize("experts", [False, True])
def test_a_wrong_candidate_is_found_out(tiny: Tiny, mixture: Tiny, experts: bool) -> None:
    """An attention that lets documents see each other gives plausible numbers and must not win."""
    import torch

    from rules._plan import read_model_config
    from rules._probe.reference import Reference
    from rules._probe.workload import Workload, run_step

    targets = ["q_proj", "gate_up_proj", "down_proj"] if experts else RECIPE["train.lora.targets"]
    model = mixture.model if experts else tiny.model
    workload = Workload(read_model_config(model), {**RECIPE, "train.lora.targets": targets})
    assert workload.experts == experts
    reference = Reference(workload, {1, 2})
    for size in (1, 2):
        for attention in ("sdpa", "eager"):
            assert workload.select(attention) == attention
            loss = run_step(workload.model, workload.batch(size))
            assert reference.why_wrong(workload.model, size, loss) is None
    leaking = workload.batch(2)
    leaking["position_ids"] = torch.arange(workload.length).expand(2, -1)
    loss = run_step(workload.model, leaking)
    assert "wrong" in str(reference.why_wrong(workload.model, 2, loss))
    loss = run_step(workload.model, workload.batch(2))
    for parameter in workload.model.parameters():
        if parameter.grad is not None:
            parameter.grad.mul_(1.01)  # right direction, wrong length
    assert "wrong gradient" in str(reference.why_wrong(workload.model, 2, loss))
    assert "wrong loss" in str(reference.why_wrong(workload.model, 2, float("nan")))


@pytest.mark.slow
def test_without_any_legal_candidate_the_probe_says_why(tiny: Tiny, tmp_path: Path) -> None:
    recipe = {**RECIPE, "autotune.micro_batch": [3], "autotune.compile": ["none"]}
    job = {
        "config": recipe,
        "platform": tiny_model.PLATFORM,
        "inputs": {"model": tiny.model},
        "outputs": {"plan": "plan.json"},
    }
    done = run_stage("rules.probe:probe", tmp_path, job)
    assert done.returncode == 1
    assert "no candidate could be measured (sdpa/none/3: micro_batch 3 does not divide" in done.stderr
    assert not (tmp_path / "plan.json").exists()


@pytest.mark.slow
def test_a_recipe_that_does_not_fit_the_model_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    job = {
        "config": {**RECIPE, "train.lora.targets": ["q_prj"]},
        "platform": tiny_model.PLATFORM,
        "inputs": {"model": tiny.model},
        "outputs": {"plan": "plan.json"},
    }
    done = run_stage("rules.probe:probe", tmp_path, job)
    assert done.returncode == 1
    assert (
        "error: model has no linear layer 'q_prj' (train.lora.targets), did you mean 'q_proj'?" in done.stderr
    )


def test_the_budget_begins_when_the_libraries_are_loaded() -> None:
    watcher = _Watcher([Measurement(SDPA), Measurement(COMPILED)], 8, 1000, 2.0, lambda **_: None)
    watcher.began -= 15  # seconds of imports
    watcher._take({"scale": 1.0})
    assert watcher.deadline == pytest.approx(time.monotonic() + 2.0, abs=0.5)


def test_the_first_compilation_is_seen_through_while_it_can_pay() -> None:
    """A budget that ends in the middle of it would have measured no compiler at all."""

    def limit(steps: int) -> tuple[_Watcher, float]:
        watcher = _Watcher([timed(SDPA, 0.1), Measurement(COMPILED)], 8, steps, 2.0, lambda **_: None)
        watcher._take({"scale": 1.0})
        watcher._take({"index": 1, "compiling": True})
        return watcher, watcher._limit() - time.monotonic()

    watcher, left = limit(1000)  # 200 s of steps
    assert left == pytest.approx(2.0 + LAST_COMPILE * 2.0, abs=0.5)
    watcher._take({"index": 1, "compile_s": 5.0})
    watcher.deadline -= 3  # past the budget, compiled and not measured yet
    assert watcher._limit() > time.monotonic()
    for _ in range(LEAST_ROUNDS):
        watcher._take({"index": 1, "seconds": 0.05})
    assert watcher._limit() < time.monotonic()

    watcher, left = limit(5)  # one second of steps
    assert left == pytest.approx(1.0, abs=0.5)
    watcher.compiling = watcher.measurements[1], time.monotonic() - 1.5
    watcher._stop()
    watcher.finish(0)
    assert "as long as all 5 steps take without" in str(watcher.measurements[1].reason)
    watcher, _ = limit(1000)
    watcher._stop()
    assert "at the end of 2 s of budget; all 1000 steps take 200.0 s" in str(watcher.measurements[1].reason)


def test_a_plan_for_inductor_holds_for_one_cxx_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it compiles is part of training, and its version is in no other key."""

    def compiler(version: str) -> None:
        tool = tmp_path / "g++"
        tool.write_text(f"#!/bin/sh\necho 'g++ {version}'\n")
        tool.chmod(0o755)

    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    compiler("12.1")
    for candidate in (COMPILED, SDPA):
        plan = plan_form(candidate.decisions(8), SHAPE, tiny_model.PLATFORM)
        write_plan(tmp_path / f"{candidate.compile}.json", plan)
    assert read_plan(tmp_path / "inductor.json", SHAPE, tiny_model.PLATFORM)["compile"] == "inductor"
    compiler("13.2")
    with pytest.raises(StageError, match=r"versions.g\+\+: plan 'g\+\+ 12.1', here 'g\+\+ 13.2'"):
        read_plan(tmp_path / "inductor.json", SHAPE, tiny_model.PLATFORM)
    assert read_plan(tmp_path / "none.json", SHAPE, tiny_model.PLATFORM)["compile"] == "none"
