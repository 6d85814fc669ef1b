"""Evaluation: the same bytes each time, a score for each row, plain words for what is wrong with a task."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import pytest

from mxt.errors import StageError
from rules._task_files import place_tasks
from tests.rules import tiny_model
from tests.rules.conftest import Tiny
from tests.rules.stage import run_stage

TASK: dict[str, Any] = {
    "task": "pick",
    "dataset_path": "json",
    "dataset_kwargs": {"data_files": {"test": "data/pick.jsonl"}},
    "test_split": "test",
    "output_type": "multiple_choice",
    "doc_to_text": "Question: {{question}}\nAnswer:",
    "doc_to_choice": "{{choices}}",
    "doc_to_target": "label",
    "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
}
CONFIG: dict[str, Any] = {
    "meta.seed": 7,
    "eval.tasks": ["tasks/pick.yaml"],
    "eval.revisions": {},
    "eval.num_fewshot": 0,
    "eval.limit": None,
    "eval.batch_size": 16,
    "eval.chat_template": False,
}


def write_task(folder: Path, rows: int = 24, **changes: Any) -> tuple[Path, Path]:
    """A task file and its data."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(5)
    with (folder / "pick.jsonl").open("w") as file:
        for _ in range(rows):
            row = {
                "question": tiny_model.sentence(rng, 5),
                "choices": [tiny_model.sentence(rng, 2) for _ in range(3)],
                "label": rng.randrange(3),
            }
            file.write(json.dumps(row) + "\n")
    (folder / "pick.yaml").write_text(
        json.dumps({k: v for k, v in {**TASK, **changes}.items() if v is not None})
    )
    return folder / "pick.yaml", folder / "pick.jsonl"


def job(tiny: Tiny, folder: Path, **config: Any) -> dict[str, Any]:
    task, data = write_task(folder)
    return {
        "config": {**CONFIG, **config},
        "platform": tiny_model.PLATFORM,
        "inputs": {"model": tiny.model, "tasks": [task], "files": [data]},
        "outputs": {"results": "results.json"},
    }


@pytest.mark.slow
def test_two_evaluations_are_one_and_score_each_row(tiny: Tiny, tmp_path: Path) -> None:
    found = []
    for name in ("one", "two"):
        done = run_stage("rules.evaluate:evaluate", tmp_path / name, job(tiny, tmp_path / name))
        assert done.returncode == 0, done.stderr
        found.append((tmp_path / name / "results.json").read_bytes())
        assert '"of": 72' in done.stdout  # three choices a row
    assert found[0] == found[1]
    assert str(tmp_path).encode() not in found[0]
    results = json.loads(found[0])
    task = results["tasks"]["pick"]
    assert [s["id"] for s in task["samples"]] == list(range(24))
    assert task["metrics"]["acc"] == pytest.approx(sum(s["scores"]["acc"] for s in task["samples"]) / 24)
    assert task["higher_is_better"] == {"acc": True}
    assert task["samples"][0]["texts"] == [
        json.loads((tmp_path / "one/pick.jsonl").read_text().splitlines()[0])["question"]
    ]


@pytest.mark.slow
def test_an_adapter_changes_the_scores(tiny: Tiny, tmp_path: Path) -> None:
    """The tuned model is the base with the adapter merged in, and a broken one is refused."""
    import torch
    from peft import LoraConfig, get_peft_model

    from rules._export import write_adapter
    from rules._runtime import load_model, load_tuned

    torch.manual_seed(0)
    model = get_peft_model(
        load_model(tiny.model), LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False)
    )
    (tmp_path / "adapter").mkdir()
    write_adapter(model, tmp_path / "adapter")
    ids = torch.arange(20)[None]
    with torch.no_grad():
        expected = model.eval()(input_ids=ids).logits
        merged = load_tuned(tiny.model, tmp_path / "adapter").eval()(input_ids=ids).logits
        base = load_model(tiny.model).eval()(input_ids=ids).logits
    assert torch.allclose(merged, expected, atol=1e-4)
    assert not torch.allclose(merged, base, atol=1e-3)
    other = tiny_model.make_model(tmp_path / "other", hidden=32)
    with pytest.raises(StageError, match="adapter does not fit the model"):
        load_tuned(other, tmp_path / "adapter")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("arc_eazy", "lm-eval has no task 'arc_eazy', did you mean 'arc_easy'?"),
        ("arc_easy", "the data of task 'arc_easy' cannot be fetched from the Hugging Face Hub"),
    ],
)
def test_a_task_that_cannot_be_had_is_named(tiny: Tiny, tmp_path: Path, task: str, message: str) -> None:
    work = job(tiny, tmp_path, **{"eval.tasks": [task], "eval.revisions": {"allenai/ai2_arc": "0" * 40}})
    work["inputs"] |= {"tasks": [], "files": []}
    nowhere = {"HF_ENDPOINT": "http://127.0.0.1:9", "NO_PROXY": "*"}
    done = run_stage("rules.evaluate:evaluate", tmp_path, work, nowhere)
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_hub_task_without_a_network_says_what_to_do() -> None:
    from rules._harness import _explained

    class OfflineModeIsEnabled(Exception):  # noqa: N818 - as huggingface_hub calls it
        pass

    error = RuntimeError("could not load")
    error.__cause__ = OfflineModeIsEnabled("offline")
    found = _explained(error, ["mmlu"])
    assert "the data of task 'mmlu' cannot be fetched" in found.message
    assert "connect to the network" in found.hint
    assert "lm-eval failed: RuntimeError: could not load" in _explained(error, []).message


def placed(tmp_path: Path, **changes: Any) -> dict[str, Any]:
    """The copy that the harness reads."""
    task, data = write_task(tmp_path, **changes)
    assert place_tasks([task], [data], tmp_path / "copy") == ["pick"]
    copy: dict[str, Any] = json.loads((tmp_path / "copy/pick.yaml").read_text())
    return copy


def test_data_files_point_at_the_inputs(tmp_path: Path) -> None:
    copy = placed(tmp_path)
    assert copy["dataset_kwargs"]["data_files"] == {"test": [str(tmp_path / "pick.jsonl")]}
    assert {k: v for k, v in copy.items() if k != "dataset_kwargs"} == {
        k: v for k, v in TASK.items() if k != "dataset_kwargs"
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": "other"}, "pick.yaml: task file names its task 'other'"),
        (
            {"output_type": "multiple_chioce"},
            "unknown output_type 'multiple_chioce', did you mean 'multiple_choice'",
        ),
        ({"dataset_path": "cais/mmlu"}, "a local task reads JSON lines"),
        ({"dataset_kwargs": None}, "no dataset_kwargs.data_files"),
        (
            {"dataset_kwargs": {"data_files": {"test": "pik.jsonl"}}},
            "'pik.jsonl' is not among .*did you mean 'pick.jsonl'",
        ),
        ({"test_split": "validation"}, "no data for its split 'validation'"),
        ({"test_split": None}, "names no split"),
        ({"include": "base.yaml"}, "includes another"),
        ({"doc_to_txt": "{{question}}"}, "unknown key 'doc_to_txt', did you mean 'doc_to_text'"),
        ({"use_prompt": "promptsource:x"}, "unknown key 'use_prompt'"),
        ({"metric_list": [{"metric": "bleu", "hf_evaluate": True}]}, "metric 'bleu' is code from the Hub"),
        ({"doc_to_text": "{{question"}, "template is broken"),
        (
            {"doc_to_text": "{{qestion}}"},
            "pick.jsonl:1: row lacks the field 'qestion' .*did you mean 'question'",
        ),
    ],
)
def test_a_broken_task_file_is_explained(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    import re

    with pytest.raises(StageError) as caught:
        placed(tmp_path, **changes)
    assert re.search(message, str(caught.value)), str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("task: [", "pick.yaml:1:8: task file is no YAML"),
        ("- a", "task file is no mapping"),
        ("task: pick\ndoc_to_text: !function utils.text", "pick.yaml:2: task file calls a Python function"),
        ("task: pick\nx: !!python/object:os.system {}", "pick.yaml:2:4: task file is no YAML"),
        (
            "a: &a [x, x]\n" + "".join(f"{c}: &{c} [*{b}, *{b}]\n" for b, c in pairwise(ascii_lowercase)),
            "pick.yaml:2: task file uses an alias '*a'",
        ),
        ("task: pick\nx: " + "[" * 5000, "task file is nested too deeply"),
    ],
)
def test_a_file_that_is_no_task_is_explained(tmp_path: Path, text: str, message: str) -> None:
    task, data = write_task(tmp_path)
    task.write_text(text)
    with pytest.raises(StageError) as caught:
        place_tasks([task], [data], tmp_path / "copy")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"question": "q", "choices": ["a"]}', "pick.jsonl:3: row lacks the field 'label'"),
        ('{"question": "q"', "pick.jsonl:3: row is no JSON"),
        ("[1]", "pick.jsonl:3: row is no JSON object"),
    ],
)
def test_a_bad_row_is_named_by_its_line(tmp_path: Path, line: str, message: str) -> None:
    task, data = write_task(tmp_path, rows=2)
    data.write_text(data.read_text() + line + "\n")
    with pytest.raises(StageError) as caught:
        place_tasks([task], [data], tmp_path / "copy")
    assert message in str(caught.value)


def test_a_data_file_without_rows_is_named(tmp_path: Path) -> None:
    task, data = write_task(tmp_path, rows=0)
    with pytest.raises(StageError, match=r"pick\.jsonl: data file has no rows"):
        place_tasks([task], [data], tmp_path / "copy")


def test_a_field_that_a_template_can_do_without_need_not_be_there(tmp_path: Path) -> None:
    text = "{% if context is defined %}{{context}} {% endif %}{{hint | default('')}}{{question}}"
    assert placed(tmp_path, doc_to_text=text)["doc_to_text"] == text
    loop = "{{question}}{% for i in range(2) %}{{i}}{% endfor %}"
    assert placed(tmp_path / "loop", doc_to_text=loop)["doc_to_text"] == loop
    with pytest.raises(StageError, match="row lacks the field 'context'"):
        placed(tmp_path / "bare", doc_to_text="{{context}}")


@pytest.mark.slow
def test_a_template_runs_no_code(tiny: Tiny, tmp_path: Path) -> None:
    """What plain Jinja would do: from any object to all of Python."""
    work = job(tiny, tmp_path)
    file = tmp_path / "ran"
    code = f"open('{file}','w')"
    text = '{{question}}{{cycler.__init__.__globals__.__builtins__.eval("' + code + '")}}'
    (tmp_path / "pick.yaml").write_text(json.dumps({**TASK, "doc_to_text": text}))
    done = run_stage("rules.evaluate:evaluate", tmp_path, work)
    assert done.returncode == 1
    assert not file.exists()
    assert "a template reaches for what is no data" in done.stderr


def test_templates_render_as_lm_eval_does_without_the_host() -> None:
    import lm_eval.evaluator
    import lm_eval.utils

    from rules._harness import contain_harness

    text = "{{q | regex_replace('a', 'b')}}{% for i in range(2) %}{{c[i]}}{% endfor %}\n"
    row = {"q": "banana", "c": ["x", "y"]}
    before = lm_eval.utils.apply_template(text, row)
    contain_harness()
    assert lm_eval.utils.apply_template(text, row) == before == "bbnbnbxy\n"
    with pytest.raises(Exception, match="undefined"):
        lm_eval.utils.apply_template("{{nothing}}", row)
    found: dict[str, Any] = {}
    lm_eval.evaluator.add_env_info(found)
    assert found == {}
    assert lm_eval.evaluator.get_git_commit_hash() is None  # asks no git, which would complain


PIN = "a" * 40


def test_a_dataset_is_read_at_its_pinned_commit_only(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    from rules._harness import pinned_datasets

    asked: list[tuple[str, Any]] = []

    def load(path: str, *args: Any, **kwargs: Any) -> None:
        asked.append((path, kwargs.get("revision")))

    monkeypatch.setattr(datasets, "load_dataset", load)
    with pinned_datasets({"cais/mmlu": PIN}) as used:
        datasets.load_dataset(path="cais/mmlu", name="law")
        datasets.load_dataset("json", data_files={"test": ["/rows.jsonl"]})
        datasets.load_dataset("own/pin", revision="b" * 40)
        for path, more, message in [
            ("cais/mmul", {}, "dataset 'cais/mmul', whose commit .* did you mean 'cais/mmlu'"),
            ("own/pin", {"revision": "main"}, "dataset 'own/pin'"),
            ("json", {"data_files": "https://x/rows.jsonl"}, "reads 'https://x/rows.jsonl'"),
        ]:
            with pytest.raises(StageError, match=message):
                datasets.load_dataset(path, **more)
    assert asked == [("cais/mmlu", PIN), ("json", None), ("own/pin", "b" * 40)]
    assert used == {"cais/mmlu": PIN, "own/pin": "b" * 40}
    assert datasets.load_dataset is load


@pytest.mark.slow
def test_a_task_whose_dataset_is_not_pinned_is_refused_before_any_work(tiny: Tiny, tmp_path: Path) -> None:
    work = job(tiny, tmp_path, **{"eval.tasks": ["arc_easy"], "eval.revisions": {"cais/mmlu": PIN}})
    work["inputs"] |= {"tasks": [], "files": []}
    done = run_stage("rules.evaluate:evaluate", tmp_path, work)
    assert done.returncode == 1
    assert "dataset 'allenai/ai2_arc', whose commit the recipe does not say" in done.stderr
    assert "revisions: {allenai/ai2_arc: <40 hex>}" in done.stderr
    assert "loading the model" not in done.stdout


def test_stages_that_never_compile_do_not_load_the_compiler() -> None:
    """It takes longer than the rest of torch."""
    import subprocess
    import sys

    code = (
        "import sys; from mxt.rule import Run; from rules._runtime import prepare;"
        "prepare(Run(), deterministic=True); import torch;"
        "assert torch.are_deterministic_algorithms_enabled();"
        "assert 'torch._inductor' not in sys.modules;"
        "import torch._inductor.config as c; assert c.deterministic"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
