"""A .json file that is one array of rows: read row by row, and what is wrong is said by the row's number."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mxt.errors import StageError
from tests.rules.data_run import Shard, chat

ROWS = [chat("one", "1"), chat("two \u2028 \u00e9", "2"), chat("three", "3")]
OPEN, MORE = "the JSON array is not closed", "something follows the JSON array"


def read(tmp_path: Path, content: str | bytes, **config: Any) -> Shard:
    path = tmp_path / "rows.json"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return Shard(path, tmp_path / "made", **config)


@pytest.mark.parametrize(
    "content",
    [
        json.dumps(ROWS),
        json.dumps(ROWS, indent=2, ensure_ascii=False),
        "\ufeff \r\n" + json.dumps(ROWS, indent=1).replace("\n", "\r\n") + "\r\n\r\n",
        "".join(json.dumps(r) + "\n" for r in ROWS),  # as .jsonl
    ],
)
def test_every_layout_gives_the_same_rows(tmp_path: Path, content: str) -> None:
    made = read(tmp_path, content)
    assert made.rows == ROWS
    assert made.outputs["passed_over"].read_text() == "[]"


@pytest.mark.parametrize(
    ("content", "message", "hint"),
    [
        ("[]", "no rows in the file", "it is empty or has blank lines only"),
        ("[", OPEN, "the file ends within or behind row 0"),
        ('[{"text": "a"}', OPEN, "a comma or a ']' must follow on row 1"),
        ('[{"text": "a"},', OPEN, "the file ends within or behind row 1"),
        ('[{"text": "a"}, {"text": "b]', "bad JSON in an array", "row 2: Unterminated string starting at"),
        ('[{"text": "a"} {"text": "b"}]', OPEN, "a comma or a ']' must follow on row 1"),
        ('[{"text": "a"}] []', MORE, "a .json file holds one array, or an object a line"),
        ("[{'text': 1}]", "bad JSON in an array", "row 1: Expecting property name enclosed in double quotes"),
        (b'[{"text": "\xff"}]', "invalid UTF-8", "0xff; save it as UTF-8"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_an_array_is_wrong_with_the_file(
    tmp_path: Path, content: str | bytes, message: str, hint: str
) -> None:
    with pytest.raises(StageError) as caught:
        read(tmp_path, content, on_bad_rows="skip")
    assert (caught.value.message, caught.value.where, caught.value.hint) == (message, "data/rows.json", hint)


def test_bad_rows_of_an_array_are_named_by_their_numbers_and_skipped_if_asked(tmp_path: Path) -> None:
    content = json.dumps([ROWS[0], 7, {**ROWS[1], "id": "x" * 2000}, ROWS[2]])
    with pytest.raises(StageError) as caught:
        read(tmp_path, content)
    assert (caught.value.message, caught.value.where) == ("not a JSON object", "data/rows.json:row 2")
    made = read(tmp_path, content, on_bad_rows="skip")
    assert made.rows == [ROWS[0], ROWS[2]]
    assert [b["where"] for b in made.bad] == ["data/rows.json:row 2", "data/rows.json:row 3"]
    assert made.outputs["passed_over"].read_text() == "[2,3]"


def test_an_array_with_another_name_is_told_what_to_be_called(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(ROWS))
    with pytest.raises(StageError, match="not a JSON object") as caught:
        Shard(path, tmp_path / "made")
    assert caught.value.hint.startswith(
        'each line must be an object such as {"messages": [...]}; '
        "this looks like one JSON array: call the file .json, or write one object a line"
    )


def test_a_large_array_in_one_line_takes_little_memory(tmp_path: Path) -> None:
    """60 MB; measured in a process of its own, by what it adds to what its imports take."""
    with (tmp_path / "rows.json").open("w") as file:
        file.write("[")
        for i in range(6000):
            file.write(("," if i else "") + json.dumps(chat(f"{i} " + "word " * 2000, "x")))
        file.write("]")
    script = f"""if True:
        import resource
        from pathlib import Path
        from rules._lines import read_rows
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        count = sum(row.bad is None for row in read_rows(Path({str(tmp_path / "rows.json")!r}), 20_000))
        print(count, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
    """
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=True
    )
    count, megabytes = map(int, done.stdout.split())
    assert count == 6000
    assert megabytes < 20
