"""The check names what was harmed and nothing else; after a repair nothing is left to name."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from mxt.store import Checkpoints, Realisation, Store
from mxt.store.check import Checked, check
from mxt.store.repair import repair

from .conftest import file_with, flip, overwrite
from .test_gc import build, show


def look(store: Store, *, quick: bool = False) -> Checked:
    return check(store.layout, store.actions.public_key, store.key.keyid, store.history, quick=quick)


def found(checked: Checked) -> dict[str, set[str]]:
    """Kind -> targets that need what is damaged."""
    out: dict[str, set[str]] = {}
    for damage in checked.damages:
        out.setdefault(damage.kind, set()).update(checked.targets(damage))
    return out


def three(store: Store) -> tuple[Realisation, Realisation, Realisation]:
    first = build(store, "first")
    second = build(store, "second", (first,))
    third = build(store, "third", (second,))
    show(store, "third", third)
    for name, one in (("first", first), ("second", second), ("third", third)):
        store.history.remember(f"//p:{name}", "", one.key)
    return first, second, third


def inner(store: Store, one: Realisation) -> Path:
    """The blob of the file in a result's folder."""
    facts = (store.layout.out(one.key) / "d/in/f").stat()
    return next(p for p in store.root.glob("cas/*/*") if p.stat().st_ino == facts.st_ino)


def test_nothing_is_wrong_and_nothing_is_touched(store: Store) -> None:
    three(store)
    before = {
        p: p.lstat() for p in store.root.rglob("*") if "sqlite" not in p.name and "locks" not in p.parts
    }
    for quick in (True, False):
        checked = look(store, quick=quick)
        assert (checked.damages, checked.runs_again()) == ([], [])
    after = {p: p.lstat() for p in store.root.rglob("*") if "sqlite" not in p.name and "locks" not in p.parts}
    assert {p: f.st_ctime_ns for p, f in before.items()} == {p: f.st_ctime_ns for p, f in after.items()}


def test_a_file_deep_in_a_folder(store: Store) -> None:
    _, second, _ = three(store)
    overwrite(inner(store, second), flip)
    assert found(look(store, quick=True)) == {"blob": {"//p:second"}, "output": {"//p:second"}}
    repair(store, look(store))
    assert not store.actions.outputs_present(second)
    assert look(store).runs_again() == ["//p:second"]
    assert look(store).damages == []


def test_a_damaged_folder_object_hides_what_is_below_and_no_more(store: Store) -> None:
    first, _, third = three(store)
    overwrite(store.cas.path(first.outputs["d"].digest), flip)
    checked = look(store)
    assert found(checked) == {"blob": {"//p:first"}}
    assert checked.whole(third.key)
    repair(store, checked)
    assert look(store).runs_again() == ["//p:first"]


def test_bytes_that_two_targets_share_are_needed_by_both(store: Store) -> None:
    first, *_ = three(store)
    path = inner(store, first)
    other = build(store, "other")
    store.history.remember("//p:other", "", other.key)
    overwrite(path, flip)
    assert found(look(store))["blob"] == {"//p:first"}
    overwrite(inner(store, other), lambda data: data + b"!")
    assert found(look(store))["blob"] == {"//p:first", "//p:other"}


def test_a_copy_in_the_outputs_brings_a_blob_back(store: Store) -> None:
    """Where no link can be made, out/ holds copies: they are worth as much as the blob."""
    first, *_ = three(store)
    blob = inner(store, first)
    out = store.layout.out(first.key) / "d/in/f"
    data = blob.read_bytes()
    out.unlink()
    shutil.copy2(blob, out)
    overwrite(blob, flip)
    done = repair(store, look(store))
    assert len(done.relinked) == 1
    assert blob.read_bytes() == data
    assert look(store).damages == []
    assert look(store).runs_again() == []


def test_damaged_checkpoints_are_set_aside_and_older_ones_stay(store: Store) -> None:
    folder = store.layout.progress("a" * 64)
    folder.mkdir(parents=True)
    checkpoints = Checkpoints(folder)
    for step in (1, 2):
        checkpoints.save(f"step-{step}", lambda place: (place / "state").write_text("weights"))
    (folder / "000002/step-2/state").write_text("wEights")
    assert [d.place for d in look(store).damages] == [f"progress/{'a' * 64}/000002"]
    assert look(store, quick=True).damages == []
    repair(store, look(store))
    assert look(store).damages == []
    newest = checkpoints.newest()
    assert newest is not None
    assert newest.name == "step-1"


def test_records_of_strangers_are_kept_and_counted(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    three(store)
    monkeypatch.setenv("MXT_KEY_FILE", str(store.root.parent / "another/key"))
    with Store(store.root) as mine:
        assert look(mine).damages == []  # its operator left his public key in the store
        shutil.rmtree(mine.layout.state / "operators")
        with Store(store.root) as again:
            checked = look(again)
            assert (checked.damages, checked.records.foreign) == ([], 6)


@pytest.mark.parametrize("seed", range(25))
def test_any_harm_is_repaired_once_and_for_all(store: Store, seed: int) -> None:
    """Whatever is flipped, cut, deleted or put in the way: after one repair a check has nothing to say."""
    dice = random.Random(seed)
    three(store)
    store.history.flush()
    for _ in range(dice.randint(1, 6)):
        parts = ("cas", "ac", "runs", "out", "evidence")
        files = sorted(p for part in parts for p in (store.root / part).rglob("*") if p.is_file())
        if not files:
            break
        path = dice.choice(files)
        harm = dice.choice(["flip", "cut", "empty", "delete", "folder", "link", "stranger"])
        if harm == "flip" and path.stat().st_size:
            overwrite(path, flip)
        elif harm == "cut":
            overwrite(path, lambda data: data[: len(data) // 2])
        elif harm == "empty":
            overwrite(path, lambda data: data[:0])
        elif harm == "stranger":
            file_with(path.parent / f"stranger{dice.random()}", b"?")
        else:
            path.unlink()
            if harm == "folder":
                path.mkdir()
            elif harm == "link":
                os.symlink("/etc/hostname", path)
    with Store(store.root) as opened:
        assert repair(opened, look(opened)).left == []
    with Store(store.root) as opened:
        assert look(opened).damages == []
        again = look(opened).runs_again()
        for key, runs in look(opened).records.runs.items():
            current = opened.actions.lookup(key)
            present = current is not None and opened.actions.outputs_present(current)
            assert present == (runs[0].label not in again)
