"""Reading rows: every form becomes the same messages, and what is wrong with a row is said at file:line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mxt.errors import StageError
from tests.rules.data_run import Shard, chat

WANTED = chat("hello", "hi there")
Make = Callable[..., Shard]


@pytest.fixture
def shard(tmp_path: Path) -> Make:
    """Write bytes, or rows as JSON lines, to data/rows.jsonl and read it."""

    def make(content: bytes | list[Any], **config: Any) -> Shard:
        if not isinstance(content, bytes):
            content = b"".join(json.dumps(r).encode() + b"\n" for r in content)
        path = tmp_path / "rows.jsonl"
        path.write_bytes(content)
        return Shard(path, tmp_path / "made", **config)

    return make


@pytest.mark.parametrize(
    ("form", "row", "wanted"),
    [
        ("messages", WANTED, WANTED),
        (
            "messages",
            {"messages": [{"from": "human", "value": "hello"}, {"from": "gpt", "value": "hi there"}]},
            WANTED,
        ),
        (
            "sharegpt",
            {"conversations": [{"from": "human", "value": "hello"}, {"from": "gpt", "value": "hi there"}]},
            WANTED,
        ),
        (
            "sharegpt",
            {
                "conversations": [
                    {"role": "User", "content": "hello"},
                    {"role": "model", "content": "hi there"},
                ]
            },
            WANTED,
        ),
        ("alpaca", {"instruction": "hello", "output": "hi there"}, WANTED),
        ("alpaca", {"instruction": "hello", "input": "", "output": "hi there"}, WANTED),
        ("alpaca", {"instruction": "add", "input": "1 2", "output": "3"}, chat("add\n\n1 2", "3")),
        ("alpaca", {"instruction": "c", "output": "d", "history": [["a", "b"]]}, chat("a", "b", "c", "d")),
        ("prompt_completion", {"prompt": "hello", "completion": "hi there"}, WANTED),
        (
            "prompt_completion",
            {
                "prompt": [{"role": "user", "content": "hello"}],
                "completion": [{"role": "assistant", "content": "hi there"}],
            },
            WANTED,
        ),
        ("text", {"text": "once\nupon"}, {"text": "once\nupon"}),
        (
            "messages",
            {
                "messages": [
                    {"role": "user", "content": [{"type": "text", "text": "hello"}]},
                    WANTED["messages"][1],
                ]
            },
            WANTED,
        ),
    ],
)
def test_each_form_is_understood_when_named_and_when_told_by_its_fields(
    shard: Make, form: str, row: dict[str, Any], wanted: dict[str, Any]
) -> None:
    row = {"id": 7, **row}
    for asked in (form, "auto"):
        got = shard([row], format=asked)
        assert got.rows == [wanted]
        assert got.report["form"] == form


def said(**more: Any) -> dict[str, Any]:
    return {"messages": [WANTED["messages"][0], {**WANTED["messages"][1], **more}]}


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (said(weight=0), "a message has a 'weight' other than 1"),
        (said(train=False), "a message has a 'train' other than 1"),
        (said(reasoning_content="because"), "a message has 'reasoning_content'"),
        (said(tool_calls=[{"name": "f"}]), "a message has 'tool_calls'"),
        ({**WANTED, "tools": [{"name": "f"}]}, "the row has 'tools'"),
        ({**WANTED, "images": ["a.png"]}, "the row has 'images'"),
        ({"prompt": "a", "completion": "b", "label": False}, "the row is marked as a bad answer"),
        ({**WANTED, "rejected": "no"}, "the row has 'rejected'"),
    ],
)
def test_a_field_that_would_change_the_lesson_is_not_passed_over(
    shard: Make, row: dict[str, Any], reason: str
) -> None:
    with pytest.raises(StageError) as caught:
        shard([row])
    assert caught.value.message.startswith(reason)
    assert caught.value.hint


def test_fields_that_ask_for_nothing_are_left_out_and_counted(shard: Make) -> None:
    rows = [
        {**said(weight=1, reasoning_content=None), "id": 1, "tools": []},
        {**WANTED, "id": 2, "label": True, "system": "be brief"},
    ]
    got = shard(rows)
    assert [len(r["messages"]) for r in got.rows] == [2, 3]
    assert got.report["fields_left_out"] == {
        "id": 2,
        "label": 1,
        "messages.reasoning_content": 1,
        "messages.weight": 1,
        "tools": 1,
    }


def test_lines_without_a_row_are_noted_from_where_the_shard_begins(shard: Make) -> None:
    from rules._pieces import line_of

    content = b"\n" + GOOD + b"{\n\n" + GOOD + GOOD
    for first in (1, 101):
        got = shard(content, first_line=first, on_bad_rows="skip")
        passed_over = json.loads(got.outputs["passed_over"].read_text())
        assert passed_over == [1, 3, 4]
        assert [line_of(i, passed_over, first) - first + 1 for i in range(3)] == [2, 5, 6]


def test_operators_make_rows_differ(shard: Make) -> None:
    from rules.shards import shingles

    assert shingles(chat("x + y", "3*4"), 2) != shingles(chat("x - y", "3*4"), 2)
    assert shingles(chat("x + y", "3*4"), 2) != shingles(chat("x + y", "3/4"), 2)
    assert shingles(chat("Well, hello -- there!", "*ok*"), 2) == shingles(chat("well hello there", "ok"), 2)


def test_a_system_message_stays_in_front(shard: Make) -> None:
    system = {"role": "system", "content": "be brief"}
    wanted = {"messages": [system, *WANTED["messages"]]}
    assert shard([wanted]).rows == [wanted]
    assert shard([{"system": "be brief", "instruction": "hello", "output": "hi there"}]).rows == [wanted]


def test_bom_crlf_blank_lines_and_a_missing_last_line_end_are_fine(shard: Make) -> None:
    line = json.dumps(WANTED).encode()
    got = shard(b"\xef\xbb\xbf" + line + b"\r\n\r\n   \n" + line)
    assert got.rows == [WANTED, WANTED]
    assert got.report["read"] == 2


def test_text_outside_ascii_is_kept_as_it_is(shard: Make) -> None:
    said = "žluťoučký\u2028kůň 🐎 \x00"
    assert shard([chat("a", said)]).rows == [chat("a", said)]


GOOD = json.dumps(WANTED).encode() + b"\n"
BAD: list[tuple[bytes, str, str]] = [
    (b'{"messages": [}\n', "bad JSON", "column 15"),
    (b'{"messages": []} x\n', "bad JSON", "Extra data"),
    (b'{"messages": ' + b"[" * 200 + b"\n", "bad JSON", ""),
    (b'{"a": ' + b"9" * 900 + b"}\n", "field 'messages' is missing", ""),
    (b"[1]\n", "not a JSON object", '{"messages": [...]}'),
    (b'{"messages": [{"role": "user", "content": "\xff"}]}\n', "invalid UTF-8", "byte 43"),
    (b'{"text": "x"}\n', "field 'messages' is missing", "needs messages"),
    (b'{"messages": "hello"}\n', "field 'messages' is not a list of messages", ""),
    (b'{"messages": ["hello"]}\n', "a message in 'messages' is not an object", ""),
    (b'{"messages": []}\n', "no messages", ""),
    (b'{"messages": [{"role": "user"}]}\n', "a message in 'messages' lacks 'content'", "role and content"),
    (b'{"messages": [{"role": "wizard", "content": "x"}]}\n', "unknown role 'wizard'", "known: system"),
    (
        b'{"messages": [{"role": "tool", "content": "x"}]}\n',
        "unknown role 'tool'",
        "tool calls are not supported",
    ),
    (b'{"messages": [{"role": 1, "content": "x"}]}\n', "unknown role '1'", ""),
    (
        json.dumps({"messages": WANTED["messages"][::-1]}).encode() + b"\n",
        "role 'assistant' where 'user' is due",
        "message 1",
    ),
    (
        json.dumps({"messages": WANTED["messages"][:1] * 2}).encode() + b"\n",
        "role 'user' where 'assistant' is due",
        "message 2",
    ),
    (json.dumps(chat("a", "b", "c")).encode() + b"\n", "no answer: the last message is the user's", ""),
    (json.dumps(chat("a", "  ")).encode() + b"\n", "field 'content' is empty", ""),
    (json.dumps(chat("a", 5)).encode() + b"\n", "field 'content' is a int, not text", ""),  # type: ignore[arg-type]
    (json.dumps(chat("a", None)).encode() + b"\n", "field 'content' is empty", ""),  # type: ignore[arg-type]
    (b'{"messages": [{"role": "user", "content": "\\ud83d"}]}\n', "half a surrogate pair", ""),
    (b'{"messages": "' + b"x" * 2000 + b'"}\n', "row of more than 1,000 bytes", "2,016 bytes"),
]


@pytest.mark.parametrize(("line", "reason", "hint"), BAD, ids=[f"{i}-{b[1][:20]}" for i, b in enumerate(BAD)])
def test_a_bad_row_stops_at_its_line_or_is_skipped_counted_and_kept(
    shard: Make, line: bytes, reason: str, hint: str
) -> None:
    content = GOOD + b"\n" + line + GOOD
    with pytest.raises(StageError) as caught:
        shard(content)
    assert caught.value.where == "data/rows.jsonl:3"
    assert reason in caught.value.message
    assert hint in caught.value.hint
    assert "on_bad_rows: skip" in caught.value.hint

    got = shard(content, on_bad_rows="skip")
    assert got.rows == [WANTED, WANTED]
    assert (got.report["read"], got.report["kept"]) == (3, 2)
    assert list(got.report["dropped"].values()) == [1]
    assert reason in next(iter(got.report["dropped"]))
    assert [b["where"] for b in got.bad] == ["data/rows.jsonl:3"]
    assert got.bad[0]["row"][:10] == line.rstrip().decode("utf-8", "backslashreplace")[:10]


def test_lines_of_a_slice_are_numbered_as_in_the_file(shard: Make) -> None:
    with pytest.raises(StageError) as caught:
        shard(GOOD + b"{\n", first_line=501)
    assert caught.value.where == "data/rows.jsonl:502"


def test_a_bom_is_only_taken_off_where_the_file_begins(shard: Make) -> None:
    with pytest.raises(StageError, match="bad JSON"):
        shard(b"\xef\xbb\xbf" + GOOD, first_line=2)


def test_an_unknown_form_names_the_fields_and_the_forms(shard: Make) -> None:
    with pytest.raises(StageError) as caught:
        shard([{"question": "q", "answer": "a"}])
    assert "'question', 'answer'" in caught.value.message
    assert "alpaca (instruction, output)" in caught.value.hint


def test_an_empty_file_is_an_error(shard: Make) -> None:
    with pytest.raises(StageError, match="no rows in the file"):
        shard(b"\n\n")


def test_a_line_of_50_mb_is_passed_over_in_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    with path.open("wb") as file:
        file.write(GOOD + b'{"text": "')
        for _ in range(50):
            file.write(b"x" * (1 << 20))
        file.write(b'"}\n' + GOOD)
    script = (
        "import resource, sys; from pathlib import Path; from tests.rules.data_run import Shard\n"
        "import rules.shards, numpy, rensa, blake3\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "s = Shard(Path(sys.argv[1]), Path(sys.argv[2]), on_bad_rows='skip', max_row_bytes=100_000)\n"
        "print(len(s.rows), s.bad[0]['where'], s.bad[0]['detail'].split(';')[0])\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(path), str(tmp_path / "made")],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    said, grown = done.stdout.splitlines()
    assert said == "2 data/rows.jsonl:2 it has 52,428,812 bytes"
    assert int(grown) < 8_000  # KiB


def test_no_stage_of_the_data_loads_torch(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(GOOD)
    script = (
        "import sys; from pathlib import Path; from tests.rules.data_run import Shard, keep\n"
        "keep([Shard(Path(sys.argv[1]), Path(sys.argv[2]))], Path(sys.argv[2]) / 'keep')\n"
        "assert not {'torch', 'transformers', 'pandas'} & set(sys.modules)\n"
    )
    subprocess.run(
        [sys.executable, "-c", script, str(path), str(tmp_path / "made")],
        check=True,
        cwd=Path(__file__).parents[2],
    )


def parquet(path: Path, rows: list[dict[str, Any]]) -> Path:
    import pyarrow
    from pyarrow import parquet

    parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return path


def test_parquet_rows_are_read_like_json_rows(tmp_path: Path) -> None:
    path = parquet(tmp_path / "rows.parquet", [{**WANTED, "id": 1}, {**chat("a", "b", "c", "d"), "id": None}])
    got = Shard(path, tmp_path / "made")
    assert got.rows == [WANTED, chat("a", "b", "c", "d")]


def test_a_bad_parquet_row_is_named_by_its_number(tmp_path: Path) -> None:
    path = parquet(tmp_path / "rows.parquet", [{"text": "a"}, {"text": None}, {"text": "x" * 2000}])
    with pytest.raises(StageError) as caught:
        Shard(path, tmp_path / "made")
    assert caught.value.where == "data/rows.parquet:row 2"
    assert "field 'text' is missing" in caught.value.message
    got = Shard(path, tmp_path / "made", on_bad_rows="skip")
    assert [b["where"] for b in got.bad] == ["data/rows.parquet:row 2", "data/rows.parquet:row 3"]


@pytest.mark.parametrize("content", [b"", b"not parquet at all", b"PAR1" + b"\0" * 100 + b"PAR1"])
def test_a_file_that_is_no_parquet_is_said_to_be_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "rows.parquet").write_bytes(content)
    with pytest.raises(StageError, match="not a readable Parquet file"):
        Shard(tmp_path / "rows.parquet", tmp_path / "made", on_bad_rows="skip")


def test_the_same_rows_give_the_same_bytes_from_jsonl_and_parquet(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_bytes(GOOD * 3)
    a = Shard(tmp_path / "rows.jsonl", tmp_path / "a")
    b = Shard(parquet(tmp_path / "rows.parquet", [WANTED] * 3), tmp_path / "b")
    for name in ("rows", "signatures"):
        assert a.outputs[name].read_bytes() == b.outputs[name].read_bytes()
