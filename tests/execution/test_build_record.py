"""The record that a build leaves: written from events, found by name, refused when damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from mxt.errors import StoreError, UsageError
from mxt.execution.build_record import KEPT, BuiltStep, Recorder, find_record, read_record, records


def record(state: Path, identity: str, *, success: bool = True) -> None:
    listener = Recorder(state, identity, ["//:x"])
    listener(
        "action_finished",
        {
            "label": "//:x",
            "action": "",
            "key": None if not success else "ab",
            "status": "executed",
            "wall_s": 0.5,
        },
    )
    listener("build_finished", {"wall_s": 1.25, "success": success, "counts": {}})


def test_what_was_written_is_read(tmp_path: Path) -> None:
    record(tmp_path, "0011")
    (path,) = records(tmp_path)
    found = read_record(path)
    assert (found.identity, found.requested, found.wall_s, found.success) == ("0011", ("//:x",), 1.25, True)
    assert found.steps == (BuiltStep("//:x", "", "ab", "executed", 0.5),)
    assert not found.interrupted
    record(tmp_path, "0022", success=False)
    assert find_record(tmp_path, "last").steps[0].key == ""


def test_builds_are_found_by_age_and_by_prefix(tmp_path: Path) -> None:
    for identity in ("aa01", "aa02", "bb03"):
        record(tmp_path, identity)
    assert find_record(tmp_path, "last").identity == "bb03"
    assert find_record(tmp_path, "last~2").identity == "aa01"
    assert find_record(tmp_path, "bb").identity == "bb03"
    for text, message in [
        ("aa", "2 builds begin with 'aa'"),
        ("cc", "no build is called 'cc'"),
        ("", "no build is called ''"),
        ("last~3", "only 3 builds are recorded"),
        ("last~", "no build is called 'last~'"),
        ("last~x", "no build is called 'last~x'"),
    ]:
        with pytest.raises(UsageError, match=message):
            find_record(tmp_path, text)


def test_without_builds_the_error_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no build is recorded"):
        find_record(tmp_path, "last")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"v":2}', '{"v":1,"identity":"x","began":"","wall_s":"y"}'])
def test_a_damaged_record_is_an_error(tmp_path: Path, text: str) -> None:
    record(tmp_path, "0011")
    records(tmp_path)[0].write_text(text)
    with pytest.raises(StoreError, match="the record of a build cannot be read"):
        find_record(tmp_path, "last")


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    for number in range(KEPT + 3):
        record(tmp_path, f"{number:04}")
    assert len(records(tmp_path)) == KEPT
    assert find_record(tmp_path, "last").identity == f"{KEPT + 2:04}"
