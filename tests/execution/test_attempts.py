"""Where an action's attempts left their logs: the last one counts, and damage is none."""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path

import pytest

from mxt.action.action import ActionId
from mxt.execution import attempts
from mxt.execution.attempts import Attempts, read_attempt

A, B = ActionId("//:a", ""), ActionId("//:b", "one")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "cache/state/attempts.log"


def evidence(file: Path, name: str) -> Path:
    return file.parent.parent / "evidence" / "key" / name


def note(file: Path, *entries: tuple[ActionId, str]) -> None:
    noted = Attempts(file)
    for identity, name in entries:
        noted.note(identity, evidence(file, name))
    noted.close()


def test_the_last_one_counts(file: Path) -> None:
    assert read_attempt(file, A) is None
    note(file, (A, "1"), (B, "2"), (A, "3"))
    assert read_attempt(file, A) == evidence(file, "3")
    assert read_attempt(file, B) == evidence(file, "2")
    assert read_attempt(file, ActionId("//:c", "")) is None
    note(file, (B, "4"))
    assert (read_attempt(file, A), read_attempt(file, B)) == (evidence(file, "3"), evidence(file, "4"))


def test_names_that_are_not_utf8(file: Path) -> None:
    name = os.fsdecode(b"run \xff")
    note(file, (ActionId(os.fsdecode(b"//:\xff"), ""), name))
    assert read_attempt(file, ActionId(os.fsdecode(b"//:\xff"), "")) == evidence(file, name)


def test_a_store_that_was_moved(file: Path, tmp_path: Path) -> None:
    note(file, (A, "1"))
    (tmp_path / "cache").rename(tmp_path / "moved")
    moved = tmp_path / "moved/state/attempts.log"
    assert read_attempt(moved, A) == evidence(moved, "1")


def test_compaction_keeps_the_last_of_each(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    note(file, *((identity, str(n)) for n in range(50) for identity in (A, B)))
    before = file.stat().st_size
    monkeypatch.setattr(attempts, "_COMPACT_FROM", before + 1)
    note(file)
    assert file.stat().st_size == before
    monkeypatch.setattr(attempts, "_COMPACT_FROM", before)
    note(file)
    assert len(file.read_bytes().splitlines()) == 2
    note(file, (A, "later"))
    assert (read_attempt(file, A), read_attempt(file, B)) == (evidence(file, "later"), evidence(file, "49"))


def test_no_compaction_while_another_build_writes(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "_COMPACT_FROM", 1)
    other = Attempts(file)
    for n in range(5):
        other.note(A, evidence(file, str(n)))
    note(file, (B, "1"))
    assert len(file.read_bytes().splitlines()) == 6
    other.note(A, evidence(file, "5"))
    other.close()
    assert (read_attempt(file, A), read_attempt(file, B)) == (evidence(file, "5"), evidence(file, "1"))
    note(file)
    assert len(file.read_bytes().splitlines()) == 2
    with file.open("rb") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # close lets go


def test_many_writers_lose_no_line(file: Path) -> None:
    names = [ActionId(f"//:{n}", "") for n in range(8)]

    def work(identity: ActionId) -> None:
        note(file, *((identity, str(n)) for n in range(50)))

    threads = [threading.Thread(target=work, args=(identity,)) for identity in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(file.read_bytes().splitlines()) == 400
    assert [read_attempt(file, identity) for identity in names] == [evidence(file, "49")] * 8


def test_any_damaged_byte(file: Path) -> None:
    """Another folder of evidence at the worst, never one elsewhere, and never a crash."""
    note(file, (A, "1"), (B, "2"), (A, "3"))
    data = file.read_bytes()
    below = evidence(file, "1").parent.parent
    for at in range(len(data)):
        for byte in (0, 10, 32, 46, 47, 255):
            file.write_bytes(data[:at] + bytes([byte]) + data[at + 1 :])
            for identity in (A, B):
                found = read_attempt(file, identity)
                assert found is None or below.name in found.parts, (at, byte, found)
    for length in range(len(data)):
        file.write_bytes(data[:length])
        for identity in (A, B):
            read_attempt(file, identity)
    file.unlink()
    file.mkdir()
    assert read_attempt(file, A) is None


def test_what_a_killed_build_left_half_written(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    note(file, (A, "1"), (B, "2"))
    file.write_bytes(file.read_bytes() + b"0123456789abcdef")
    monkeypatch.setattr(attempts, "_COMPACT_FROM", 1)
    note(file)
    assert (read_attempt(file, A), read_attempt(file, B)) == (evidence(file, "1"), evidence(file, "2"))
