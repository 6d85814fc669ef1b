"""The gate: better by more than chance, on enough rows, none of them trained on."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import pytest

from mxt.errors import StageError
from rules._harness import answer_of, texts_of
from rules._overlap import HeldOut, shared_rows, words_of
from rules.gate import decide, members, rows_of
from tests.rules.stage import run_stage


def verdict(base: list[float], tuned: list[float], **changes: Any) -> dict[str, Any]:
    return decide(
        **{
            "task": "t",
            "metric": "acc",
            "base": base,
            "tuned": tuned,
            "higher_is_better": True,
            "shared": 0,
            "min_rows": 200,
            "standard_errors": 3.0,
            **changes,
        }
    )


def scores(rng: random.Random, n: int, p: float) -> list[float]:
    return [float(rng.random() < p) for _ in range(n)]


def test_a_clear_gain_passes_with_its_numbers() -> None:
    rng = random.Random(0)
    found = verdict(scores(rng, 240, 0.3), scores(rng, 240, 0.9))
    assert found["passed"]
    assert found["failures"] == []
    assert found["gain"] == pytest.approx(found["tuned"] - found["base"])
    assert "standard errors (needs more than 3)" in found["summary"]


def test_the_standard_error_is_that_of_pairs() -> None:
    base = [0.0, 1.0] * 100
    tuned = [1.0, 1.0, *base[2:]]  # one row better, none worse
    found = verdict(base, tuned)
    assert found["gain"] == pytest.approx(1 / 200)
    assert found["standard_error"] == pytest.approx((1 / 200 * (1 - 1 / 200) / 199) ** 0.5)
    assert not found["passed"]


def test_equal_models_pass_about_never() -> None:
    rng = random.Random(3)
    passed = sum(verdict(scores(rng, 200, 0.5), scores(rng, 200, 0.5))["passed"] for _ in range(500))
    assert passed <= 3  # a one-sided chance of 0.13 %


@pytest.mark.parametrize(
    ("changes", "failure"),
    [
        ({"min_rows": 241}, "only 240 different held-out rows, 241 are needed"),
        ({"shared": 2}, "2 of 240 held-out rows are also in the training data"),
        ({"higher_is_better": False}, "is not above 3 standard errors"),
        ({"standard_errors": 60.0}, "is not above 60 standard errors"),
    ],
)
def test_each_condition_can_fail(changes: dict[str, Any], failure: str) -> None:
    rng = random.Random(0)
    found = verdict(scores(rng, 240, 0.3), scores(rng, 240, 0.9), **changes)
    assert not found["passed"]
    assert any(failure in f for f in found["failures"])
    assert failure in found["summary"]


def test_no_rows_and_no_spread() -> None:
    assert not verdict([], [])["passed"]
    flat = verdict([0.0] * 200, [1.0] * 200)
    assert flat["passed"]
    assert flat["standard_error"] == pytest.approx(1 / 201)
    assert "as all rows gained the same" in flat["summary"]
    assert not verdict([0.0] * 200, [1.0] * 200, standard_errors=202.0)["passed"]
    assert not verdict([1.0] * 200, [1.0] * 200)["passed"]


def found(held_out: list[list[str]], training: list[str], answers: list[str] | None = None) -> set[int]:
    answers = answers or [""] * len(held_out)
    return set(shared_rows([HeldOut(t, a) for t, a in zip(held_out, answers, strict=True)], training))


HELD_OUT = [
    ["Say in Talo: the quiet goat hears."],
    ["Which of these is the capital of France?", "geography"],
    ["blue", "red"],
]


@pytest.mark.parametrize(
    ("training", "shared"),
    [
        ("say in talo, THE QUIET  goat hears", {0}),
        ("Please answer. Say in Talo: the quiet goat hears. Thanks!", {0}),
        ("Say in Talo: the quiet goat hears-ay", {0}),
        ("Say in Talo: the quiet goat hearse.", set()),
        ("Say in Talo: the quiet dog hears.", set()),
        ("Which of these is the capital of France?\nParis", {1}),
        ("I like geography", set()),
        ("blue", set()),
        ("blue red", {2}),
        ("", set()),
    ],
)
def test_overlap(training: str, shared: set[int]) -> None:
    assert found(HELD_OUT, [training]) == shared


def test_an_instruction_common_to_the_rows_tells_nothing() -> None:
    rows = [
        ["Answer the following question in one word", f"what is thing number {i} called"] for i in range(10)
    ]
    assert found(rows, ["answer the following question in one word: why"]) == set()
    assert found(rows, ["what is thing number 4 called"]) == {4}


def test_words_are_evened_out() -> None:
    assert words_of("ﬁne — ÉTÉ,  x_1!") == ("fine", "été", "x_1")


def test_overlap_agrees_with_a_plain_search() -> None:
    rng = random.Random(5)
    words = ["a", "b", "c", "d"]
    for _ in range(200):
        held_out = [[" ".join(rng.choices(words, k=rng.randrange(4, 6)))] for _ in range(2)]
        training = [" ".join(rng.choices(words, k=12)) for _ in range(3)]
        plain = {i for i, [t] in enumerate(held_out) for text in training if f" {t} " in f" {text} "}
        assert found(held_out, training) == plain


QUESTIONS = [
    f"Say in Talo: the {a} goat hears the {b} horse."
    for a in ("quiet", "red", "old", "big")
    for b in ("green", "small", "young", "warm")
]
ANSWERS = [f"gafun {i:x}ei remas bafun {i:x}oi." for i in range(16)]


@pytest.mark.parametrize(
    "training",
    [
        "Translate into that language: the quiet goat hears the green horse",
        "in talo the quiet goat hears the green horse",
        "How would one put it, that a quiet goat hears the green horse?\nWell: Gafun 0ei remas bafun 0oi",
        "Q: the quiet goat hears the green horse\nA) gafun yei remas bafun yoi B) gafun 0ei remas bafun 0oi",
    ],
)
def test_a_question_in_other_clothes_is_found(training: str) -> None:
    rows = [[q] for q in QUESTIONS]
    assert found(rows, [training], ANSWERS) == {0}
    alike = training.replace("quiet", "proud").replace("green", "sad")
    assert found(rows, [alike.replace("0", "x")], ANSWERS) == set()


def test_half_of_a_long_text_is_enough_and_a_phrase_of_it_is_not() -> None:
    text = " ".join(f"w{i}" for i in range(60))
    for words, shared in ((range(10, 50), {0}), (range(10, 25), set())):
        assert found([[text]], ["it says " + " ".join(f"w{i}" for i in words) + " somewhere"]) == shared


def test_a_short_answer_needs_most_of_the_question() -> None:
    rows, answers = [["What is the name of the capital of the country France?"]], ["Paris"]
    close = "What was the name of the capital of the country Spain? Not Paris"
    assert found(rows, [close], answers) == set()
    assert found(rows, ["Tell me what is the name of the capital of France: Paris"], answers) == set()
    assert found(rows, ["And the name of the capital of the country France? It is Paris"], answers) == {0}


def test_few_words_are_a_row_only_with_their_answer() -> None:
    rows, answers = [["great film"], ["what is 2+2"], ["what is 2-2"]], ["positive", "4", "0"]
    assert found(rows, ["a great film, they say"], answers) == set()
    assert found(rows, ["great film\nPositive"], answers) == {0}
    assert found(rows, ["what is 2 + 2\n4"], answers) == {1}


def test_text_without_spaces_is_searched_by_the_character() -> None:
    assert found([["法国的首都是哪里"]], ["请回答:法国的首都是哪里?巴黎"]) == {0}
    assert found([["法国的首都是哪里"]], ["请回答:德国的首都是哪里?柏林"]) == set()


def test_it_stays_quick() -> None:
    rng = random.Random(1)
    words = [f"w{i}" for i in range(300)]
    rows = [["what is the " + " ".join(rng.choices(words, k=15))] for _ in range(2000)]
    training = ["what is the " + " ".join(rng.choices(words, k=100)) for _ in range(3000)]
    began = time.process_time()
    assert found(rows, [*training, f"oh {rows[7][0]}"], ["yes"] * 2000) == {7}
    assert time.process_time() - began < 30  # 1 s; comparing each with each takes minutes


def results(samples: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    found = {"metrics": {}, "higher_is_better": {"acc": True}, "version": "1", "samples": samples, **changes}
    return {"version": 1, "settings": {}, "groups": {}, "tasks": {"t": found}}


def make(folder: Path, base: list[float], tuned: list[float], training: list[str]) -> dict[str, Any]:
    """A gate's task as JSON."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, values in (("base", base), ("tuned", tuned)):
        rows = [
            {"id": i, "texts": [f"what is the number after {i}"], "scores": {"acc": v}}
            for i, v in enumerate(values)
        ]
        (folder / f"{name}.json").write_text(json.dumps(results(rows)))
    (folder / "rows.jsonl").write_text(
        "".join(json.dumps({"messages": [{"role": "user", "content": t}]}) + "\n" for t in training)
    )
    return {
        "config": {
            "eval.gate.task": "t",
            "eval.gate.metric": "acc",
            "eval.gate.min_rows": 200,
            "eval.gate.standard_errors": 3.0,
        },
        "inputs": {
            "base": folder / "base.json",
            "tuned": folder / "tuned.json",
            "shards": [folder / "rows.jsonl"],
            "keep": [],
        },
        "outputs": {"verdict": "verdict.json"},
    }


def test_the_stage_finds_overlap_and_starts_quickly(tmp_path: Path) -> None:
    rng = random.Random(1)
    base, tuned = scores(rng, 250, 0.2), scores(rng, 250, 0.9)
    job = make(
        tmp_path, base, tuned, ["what is the number before 3", "tell me what is the number after 7 please"]
    )
    began = time.monotonic()
    done = run_stage("rules.gate:gate", tmp_path, job)
    took = time.monotonic() - began
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "verdict.json").read_text())
    assert not found["passed"]
    assert found["shared_rows"] == 1
    assert json.loads((tmp_path / "evidence/shared_rows.json").read_text())[0]["row"] == 7
    assert took < 10  # 0.2 s on an idle machine: neither torch nor numpy is loaded


def test_a_dropped_row_is_no_training_row(tmp_path: Path) -> None:
    rng = random.Random(1)
    job = make(
        tmp_path,
        scores(rng, 250, 0.2),
        scores(rng, 250, 0.9),
        ["hello you there now", "what is the number after 7"],
    )
    (tmp_path / "keep.json").write_text("[0]")
    job["inputs"]["keep"] = [tmp_path / "keep.json"]
    assert run_stage("rules.gate:gate", tmp_path, job).returncode == 0
    assert json.loads((tmp_path / "verdict.json").read_text())["passed"]


def test_without_the_training_rows_it_cannot_pass(tmp_path: Path) -> None:
    rng = random.Random(1)
    job = make(tmp_path, scores(rng, 250, 0.2), scores(rng, 250, 0.9), [])
    job["inputs"]["shards"] = []
    assert run_stage("rules.gate:gate", tmp_path, job).returncode == 0
    found = json.loads((tmp_path / "verdict.json").read_text())
    assert not found["passed"]
    assert "were not given" in found["summary"]


@pytest.mark.parametrize(("copies", "different"), [(240, 1), (130, 111)])
def test_copies_of_a_question_count_once(tmp_path: Path, copies: int, different: int) -> None:
    job = make(tmp_path, [0.0] * 240, [1.0] * 240, ["tell me what is the number after 0 please"])
    for name in ("base", "tuned"):
        path = job["inputs"][name]
        form = json.loads(path.read_text())
        for row in form["tasks"]["t"]["samples"][:copies]:
            row["texts"] = ["What is the number after 0?"]
        path.write_text(json.dumps(form))
    assert run_stage("rules.gate:gate", tmp_path, job).returncode == 0
    found = json.loads((tmp_path / "verdict.json").read_text())
    assert not found["passed"]
    assert (found["rows"], found["copies"], found["shared_rows"]) == (different, 240 - different, 1)
    assert any(f.startswith(f"only {different} different held-out rows") for f in found["failures"])
    assert f"1 of {different} held-out rows are also in the training data" in found["failures"]


def test_rows_that_cannot_be_recognised_cannot_pass(tmp_path: Path) -> None:
    job = make(tmp_path, [0.0] * 240, [1.0] * 240, [])
    for name in ("base", "tuned"):
        path = job["inputs"][name]
        form = json.loads(path.read_text())
        form["tasks"]["t"]["samples"][5]["texts"] = ["?!"]
        path.write_text(json.dumps(form))
    assert run_stage("rules.gate:gate", tmp_path, job).returncode == 0
    found = json.loads((tmp_path / "verdict.json").read_text())
    assert not found["passed"]
    assert "1 held-out rows have no text" in found["summary"]


def test_different_rows_are_refused(tmp_path: Path) -> None:
    job = make(tmp_path, [0.0] * 210, [1.0] * 209, [])
    done = run_stage("rules.gate:gate", tmp_path, job)
    assert done.returncode == 1
    assert "judged on different rows of 't'" in done.stderr


def test_a_metric_or_task_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text(json.dumps(results([{"id": 0, "texts": [], "scores": {"acc_norm": 1.0}}])))
    with pytest.raises(StageError, match="no score a row for metric 'acc_nrm', did you mean 'acc_norm'"):
        rows_of(path, "t", "acc_nrm")
    with pytest.raises(StageError, match="results have no task 'u'"):
        rows_of(path, "u", "acc")


def test_groups_count_all_their_tasks_once() -> None:
    groups = {"mmlu": ["stem", "law"], "stem": ["maths", "physics"]}
    assert members("mmlu", groups) == ["maths", "physics", "law"]
    assert members("law", groups) == ["law"]


def test_results_give_the_right_answer_in_words_and_no_names_of_rows() -> None:
    choices = [("Capital of France?", " Rome"), ("Capital of France?", " Paris")]
    assert answer_of({"target": 1, "arguments": choices}) == "Paris"
    assert answer_of({"target": [1, 0], "arguments": choices}) == "Paris"
    assert answer_of({"target": " Paris", "arguments": choices[:1]}) == "Paris"
    assert answer_of({"target": 5, "arguments": choices}) == ""
    doc = {"id": "q7", "doc_id": "a", "questionId": "b", "question": "Capital?", "covid": "yes"}
    assert texts_of(doc) == ["yes", "Capital?"]
