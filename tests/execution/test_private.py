"""Paths of this machine in outputs: found in small and large files, wherever they stand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mxt.action.action import Action, ActionId, Output
from mxt.errors import ActionError
from mxt.execution import private
from mxt.execution.prepare import Layout
from mxt.execution.private import PrivateSearch

NEEDLE = "/home/ann/ws"
FILLER = {"text": b"some words\n" * 100_000, "binary": os.urandom(1 << 20), "one line": b"x" * (1 << 20)}


def search(tmp_path: Path, data: bytes) -> None:
    outputs = tmp_path / "outputs"
    outputs.mkdir()
    (outputs / "o").write_bytes(data)
    action = Action(ActionId("//:x"), "Genrule", "genrule", {}, (), (Output("o", "o", "file"),))
    layout = Layout([], {}, "/", tmp_path, outputs, "none", (NEEDLE, "/mxt/exec"), "/mxt/exec")
    PrivateSearch(action, layout).finish()


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("filler", FILLER)
@pytest.mark.parametrize("place", [0, 0.5, 1])
def test_found_wherever_it_stands(
    tmp_path: Path, filler: str, place: float, large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(private, "_LARGE", 1 << 10 if large else 1 << 40)
    data = FILLER[filler]
    at = int(len(data) * place)
    with pytest.raises(ActionError, match=f"output 'o' contains the path '{NEEDLE}'"):
        search(tmp_path, data[:at] + NEEDLE.encode() + b"/f" + data[at:])


@pytest.mark.parametrize("filler", FILLER)
def test_nothing_is_found_where_nothing_is(
    tmp_path: Path, filler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not in clean data, and not where another path begins alike."""
    monkeypatch.setattr(private, "_LARGE", 1 << 10)
    search(tmp_path, FILLER[filler] + NEEDLE.encode() + b"2/f")


def test_without_grep_it_is_found_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private, "_LARGE", 1 << 10)
    monkeypatch.setattr(private, "_GREP", ["/nowhere/grep"])
    with pytest.raises(ActionError, match=NEEDLE):
        search(tmp_path, FILLER["binary"] + NEEDLE.encode())


def test_a_line_too_long_for_greps_memory_is_searched_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(private, "_LARGE", 1 << 10)
    monkeypatch.setattr(private, "_GREP", ["/usr/bin/prlimit", "--as=16000000", "grep"])
    with pytest.raises(ActionError, match=NEEDLE):
        search(tmp_path, FILLER["one line"] * 40 + NEEDLE.encode())
