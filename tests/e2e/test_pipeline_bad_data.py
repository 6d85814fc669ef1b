"""Bad rows and recipes given to the real command: where it is, what it is, what to do; and no traceback."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.e2e.conftest import Workspace
from tests.e2e.pipeline import MICRO, RECIPE, SHARDS, edit, evidence, row, stages

ROWS = "recipes/micro/rows-1.jsonl"
SKIP = ("  format: messages\n", "  format: messages\n  on_bad_rows: skip\n")
MEGABYTE = b"x" * 1_000_000
COMMIT = "c1899de289a04d12100db370d81485cdf75e47ca"


def insert(ws: Workspace, line: bytes, after: int = 3) -> None:
    """Put a line behind the first few of the second shard."""
    lines = (ws.root / ROWS).read_bytes().splitlines(keepends=True)
    ws.write(ROWS, b"".join([*lines[:after], line + b"\n", *lines[after:]]))


BAD_ROWS = {
    "bad JSON": (b'{"messages": [{"role": "user"', "bad JSON", "column 30"),
    "no object": (b'["hello"]', "not a JSON object", '{"messages": [...]}'),
    "missing field": (b'{"prompt": "a"}', "field 'messages' is missing", "a row of form 'messages' needs"),
    "missing content": (b'{"messages": [{"role": "user"}]}', "a message in 'messages' lacks 'content'", ""),
    "unknown role": (
        b'{"messages": [{"role": "robot", "content": "x"}]}',
        "unknown role 'robot'",
        "known: system",
    ),
    "wrong turns": (
        b'{"messages": [{"role": "user", "content": "x"}, {"role": "user", "content": "y"}]}',
        "role 'user' where 'assistant' is due",
        "message 2",
    ),
    "no answer": (b'{"messages": [{"role": "user", "content": "x"}]}', "no answer", "nothing to learn"),
    "empty content": (row("x", "  ").rstrip().encode(), "field 'content' is empty", "mend the row"),
    "invalid UTF-8": (b'{"messages": "caf\xe9"}', "invalid UTF-8", "byte 17 of the line, 0xe9"),
    "50 MB": (
        b'{"messages": "' + MEGABYTE * 50 + b'"}',
        "row of more than 1,000,000 bytes",
        "it has 50,000,016 bytes",
    ),
}


@pytest.mark.parametrize("kind", BAD_ROWS)
def test_a_bad_row_stops_at_its_line(micro: Workspace, kind: str) -> None:
    line, reason, hint = BAD_ROWS[kind]
    insert(micro, line)
    result = micro.build(f"{MICRO}.dedupe", "-k", code=1)
    assert f"error: {ROWS}:4: {reason}" in result.err
    assert hint in result.err
    assert "set data.on_bad_rows: skip to leave such rows out" in result.err
    assert len(result.err) < 2000, "it shows the row as a whole"
    assert result.finished == {
        f"{MICRO}.shards[0000]": "cached",
        f"{MICRO}.shards[0001]": "failed",
        f"{MICRO}.shards[0002]": "cached",
        f"{MICRO}.dedupe": "skipped",
    }


def test_skipped_rows_are_counted_and_kept(micro: Workspace) -> None:
    rows = (micro.output("recipes/micro.shards") / "0001/rows.jsonl").read_bytes()
    for line, _, _ in BAD_ROWS.values():
        insert(micro, line)
    edit(micro, *SKIP)
    micro.build(f"{MICRO}.shards")
    assert (micro.output("recipes/micro.shards") / "0001/rows.jsonl").read_bytes() == rows

    report = json.loads(evidence(micro, f"{MICRO}.shards", "report.json", "0001"))
    assert (report["read"], report["kept"]) == (16 + len(BAD_ROWS), 16)
    assert sum(report["dropped"].values()) == len(BAD_ROWS)
    for _, reason, _ in BAD_ROWS.values():
        assert [n for r, n in report["dropped"].items() if r.startswith(reason)] == [1], reason
    kept = [json.loads(x) for x in evidence(micro, f"{MICRO}.shards", "bad_rows.jsonl", "0001").splitlines()]
    assert [bad["where"] for bad in kept] == [f"{ROWS}:{n}" for n in range(4, 4 + len(BAD_ROWS))]
    assert all(len(bad["row"]) <= 1000 for bad in kept)
    assert {bad["reason"] for bad in kept} == set(report["dropped"])


def test_lines_are_counted_in_the_file_and_not_in_its_shard(micro: Workspace) -> None:
    edit(micro, "  format: messages\n", "  format: messages\n  rows_per_shard: 5\n")
    insert(micro, b"nonsense", after=12)
    result = micro.build(f"{MICRO}.shards", "-k", code=1)
    assert f"error: {ROWS}:13: bad JSON" in result.err
    failed = [name for name, status in result.finished.items() if status == "failed"]
    assert failed == [f"{MICRO}.shards[0006]"]  # 16 rows are four shards; the third of the second file


@pytest.mark.parametrize("content", [b"", b"\n \n\n"], ids=["empty", "blank"])
def test_an_empty_file(micro: Workspace, content: bytes) -> None:
    micro.write(ROWS, content)
    result = micro.build(f"{MICRO}.shards", "-k", code=1)
    assert f"error: {ROWS}: no rows in the file" in result.err
    assert "it is empty or has blank lines only" in result.err


def test_no_files(micro: Workspace) -> None:
    edit(micro, "micro/rows-*.jsonl", "micro/row-*.jsonl")
    result = micro.build(f"{MICRO}.shards", code=1)
    said = "'data.files' 'micro/row-*.jsonl' matches no file, did you mean 'micro/rows-2.jsonl'?"
    assert f"recipes/micro.yaml:30:3: {said}" in result.err


def test_a_form_that_cannot_be_told(micro: Workspace) -> None:
    edit(micro, "  format: messages\n", "")
    micro.write(ROWS, '{"inputs": "a", "targets": "b"}\n')
    result = micro.build(f"{MICRO}.shards", "-k", code=1)
    said = "the form of the rows cannot be told from the fields 'inputs', 'targets'"
    assert f"error: {ROWS}:1: {said}" in result.err
    assert "set data.format" in result.err


def test_nothing_is_left_to_train_on(micro: Workspace) -> None:
    for number in range(3):
        micro.write(f"recipes/micro/rows-{number}.jsonl", '{"text": "a"}\n')
    edit(micro, *SKIP)
    result = micro.build(f"{MICRO}.train", code=1)
    assert stages(result) == {"dedupe", *(f"{s}[{n}]" for s in ("shards", "pack") for n in SHARDS)}
    assert f"error: {MICRO}.train: there is not one training sequence" in result.err
    assert "see the reports of shards, dedupe, pack" in result.err


# what stands in the recipe, what is put there, and of that line the column and what is said
RECIPES = [
    ("strategy: bfd", "stratgy: bfd", 5, "unknown key 'stratgy', did you mean 'strategy'?"),
    ("train:\n  lora", "trian:\n  lora", 1, "unknown key 'trian', did you mean 'train'?"),
    ("max_length: 64", 'max_length: "64"', 17, "'data.pack.max_length': input should be a valid integer"),
    ("format: messages", "format: mesages", 11, "'data.format': input should be 'auto', 'messages'"),
    (
        "max_length: 64",
        "max_length: 97",
        5,
        "'data.pack.max_length' 97 is longer than the model of model.init can take, 96 tokens",
    ),
    (
        "micro_batch: [2]",
        "micro_batch: [3]",
        3,
        "'autotune.micro_batch' 3 does not divide train.batch_size 4",
    ),
    ("task: count", "task: cuont", 5, "'eval.gate.task' 'cuont' is none of the tasks: count"),
]


@pytest.mark.parametrize(
    ("old", "new", "column", "said"), RECIPES, ids=[r[1].partition(":")[0] for r in RECIPES]
)
def test_an_unfit_recipe(micro: Workspace, old: str, new: str, column: int, said: str) -> None:
    edit(micro, old, new)
    text = micro.read("recipes/micro.yaml")
    line = text[: text.index(new)].count("\n") + 1
    result = micro.build(MICRO, code=1)
    assert f"recipes/micro.yaml:{line}:{column}: {said}" in result.err
    assert new.splitlines()[0] in result.err  # the line itself is shown
    assert result.finished == {}


def first_shard(text: str) -> str:
    """A message about any shard, as if it were about the first: each of them fails, whichever came first."""
    return re.sub(r"\[\d{4}\]", "[0000]", text)


def use_folder(ws: Workspace) -> Path:
    """Make the recipe take its model from a folder: what init_model has made, without its template."""
    folder = ws.root / "recipes/model"
    shutil.copytree(ws.output("recipes/micro.init_model") / "model", folder)
    for path in [folder, *folder.iterdir()]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    begin, end = RECIPE.index("model:\n"), RECIPE.index("data:\n")
    ws.write("recipes/micro.yaml", f"{RECIPE[:begin]}model:\n  path: model\n{RECIPE[end:]}")
    return folder


def test_a_model_without_a_template(micro: Workspace) -> None:
    folder = use_folder(micro)
    template = (folder / "chat_template.jinja").read_text()
    (folder / "chat_template.jinja").unlink()
    result = micro.build(f"{MICRO}.pack", "-j1", code=1)
    assert "pack[0000]: the model's tokenizer has no chat template" in first_shard(result.err)
    assert "set data.chat_template to a Jinja file with {% generation %}" in result.err

    plain = template.replace("{% generation %}", "").replace("{% endgeneration %}", "")
    micro.write("recipes/model/chat_template.jinja", plain)
    result = micro.build(f"{MICRO}.pack", "-j1", code=1)
    assert "the chat template has no {% generation %}: what the assistant says cannot be told" in result.err

    micro.write("recipes/chat.jinja", template)
    edit(micro, "  format: messages\n", "  format: messages\n  chat_template: chat.jinja\n")
    assert stages(micro.build(f"{MICRO}.pack")) == {f"pack[{n}]" for n in SHARDS}


def test_sequences_longer_than_the_model(micro: Workspace) -> None:
    use_folder(micro)
    edit(micro, "    max_length: 64\n", "    max_length: 97\n")
    result = micro.build(f"{MICRO}.pack", "-j1", code=1)
    said = "data.pack.max_length 97 is longer than the model's 96 positions"
    assert f"error: {MICRO}.pack[0000]: {said}" in first_shard(result.err)
    assert "set it to 96 or less" in result.err


def test_a_row_longer_than_a_sequence(micro: Workspace) -> None:
    insert(micro, row("how many? " + "many " * 60, "none").encode().rstrip())
    result = micro.build(f"{MICRO}.pack", code=1)
    assert f"error: {ROWS}:4: a row has " in result.err
    assert f"in: {MICRO}.pack[0001]" in result.err
    assert "it begins 'how many? many many" in result.err
    assert "raise max_length, or set data.pack.overlong to 'truncate' or 'drop'" in result.err


def test_a_model_of_the_hub_without_a_network(micro: Workspace) -> None:
    begin, end = RECIPE.index("model:\n"), RECIPE.index("data:\n")
    hub = f"model:\n  hub: {{repo: Qwen/Qwen3-0.6B, revision: {COMMIT}}}\n"
    micro.write("recipes/micro.yaml", RECIPE[:begin] + hub + RECIPE[end:])
    nowhere = {"HF_ENDPOINT": "http://127.0.0.1:9"}
    result = micro.build(MICRO, "-k", code=1, env=nowhere)
    assert "error: Qwen/Qwen3-0.6B: cannot reach the Hub at http://127.0.0.1:9" in result.err
    assert "build this target once on a machine with a network" in result.err
    assert "name it in model.path instead of model.hub" in result.err
    assert result.finished[f"{MICRO}.fetch_model"] == "failed"
    assert result.finished[f"{MICRO}.dedupe"] == "cached"
    assert result.finished[f"{MICRO}.train"] == "skipped"

    edit(micro, COMMIT, "main")
    result = micro.build(MICRO, code=1)
    assert "model.hub.revision is 'main', which may come to mean another commit" in result.err
    assert result.finished == {}
