"""How long actions took last time: few are asked for one by one, many read at once, damage forgets."""

from __future__ import annotations

from pathlib import Path

import pytest

from mxt.action.action import ActionId
from mxt.execution import durations
from mxt.execution.durations import Durations


def saved(path: Path, number: int) -> None:
    noted = Durations(path)
    for n in range(number):
        noted.note(ActionId(f"//:{n}", ""), n + 0.25)
    noted.save()


def test_what_was_noted_is_known_at_once_and_later(tmp_path: Path) -> None:
    path = tmp_path / "state/durations.sqlite"
    noted = Durations(path)
    one, two = ActionId("//:x", "1"), ActionId("//:x", "2")
    assert noted.get(one) is None
    noted.note(one, 1.23456)
    assert noted.get(one) == 1.235
    noted.save()
    again = Durations(path)
    assert (again.get(one), again.get(two)) == (1.235, None)
    again.note(one, 9.0)
    again.save()
    assert Durations(path).get(one) == 9.0


@pytest.mark.parametrize("number", [durations._FEW - 1, durations._FEW, 3 * durations._FEW])
def test_few_and_many_are_told_the_same(tmp_path: Path, number: int) -> None:
    path = tmp_path / "durations.sqlite"
    saved(path, number)
    asked = Durations(path)
    names = [ActionId(f"//:{n}", "") for n in range(number)]
    assert [asked.get(name) for name in names] == [n + 0.25 for n in range(number)]
    assert asked.get(ActionId("//:other", "")) is None
    assert [asked.get(name) for name in names] == [n + 0.25 for n in range(number)]
    asked.save()


@pytest.mark.parametrize("damage", ["garbage", "empty", "gone", "folder"])
def test_damage_forgets(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "durations.sqlite"
    saved(path, 3)
    for suffix in ("-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    path.unlink()
    if damage == "folder":
        path.mkdir()
    elif damage != "gone":
        path.write_bytes(b"garbage" * 1000 if damage == "garbage" else b"")
    name = ActionId("//:1", "")
    asked = Durations(path)
    assert asked.get(name) is None
    asked.note(name, 2.0)
    asked.save()
    if damage != "folder":
        assert Durations(path).get(name) == 2.0
