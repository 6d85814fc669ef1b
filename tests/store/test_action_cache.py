from __future__ import annotations

import os
from pathlib import Path

import pytest

from mxt.action.canonical import dump, load
from mxt.errors import StoreError
from mxt.store import Outcome, Output, Realisation, RunRecord, Store, hash_bytes, run_name, store_tree
from mxt.store.layout import SEAL_TIMES

from .conftest import file_with, flip, overwrite

KEY = hash_bytes(b"the form of an action")


def realise(store: Store, data: bytes, key: str = KEY) -> Realisation:
    digest = store.cas.put_bytes(data)
    return Realisation(key, {"out": Output("file", digest, "out.txt", len(data))})


def run_of(
    realisation: Realisation, started: str = "2026-01-01T00:00:00Z", label: str = "//p:t"
) -> RunRecord:
    return RunRecord(
        realisation.key, realisation.digest, label, started, "0.5", evidence={"log": hash_bytes(b"")}
    )


def only_record(store: Store, key: str = KEY) -> Path:
    return store.layout.action(key) / f"{store.key.keyid}.json"


def test_what_was_recorded_is_found(store: Store) -> None:
    assert store.actions.lookup(KEY) is None
    made = realise(store, b"output")
    assert store.actions.record(made, run_of(made)).outcome is Outcome.FIRST
    found = store.actions.lookup(KEY)
    assert found == made
    assert found is not None
    assert found.operator == store.key.keyid
    assert store.actions.outputs_present(found)
    assert os.listdir(store.layout.tmp) == []


def test_runs_come_back_in_order(store: Store) -> None:
    made = realise(store, b"output")
    for started in ("2026-01-02T00:00:00Z", "2026-01-01T00:00:00Z", "2026-01-03T00:00:00Z"):
        store.actions.record(made, run_of(made, started))
    assert [run.started[8:10] for run in store.actions.runs(KEY)] == ["01", "02", "03"]
    latest = store.actions.latest_run(KEY)
    assert latest is not None
    assert latest == run_of(made, "2026-01-03T00:00:00Z")
    assert latest.operator == store.key.keyid
    assert store.actions.latest_run(hash_bytes(b"another")) is None


def test_a_run_keeps_the_name_of_its_evidence(store: Store) -> None:
    made = realise(store, b"output")
    name = run_name("2026-01-01T00:00:00Z")
    run = RunRecord(KEY, made.digest, "//p:t", "2026-01-01T00:00:00Z", "0.5", name=name)
    store.actions.record(made, run)
    assert [found.name for found in store.actions.runs(KEY)] == [name]


def test_the_same_again_is_the_same(store: Store) -> None:
    made = realise(store, b"output")
    store.actions.record(made, run_of(made))
    inode = only_record(store).stat().st_ino
    assert store.actions.record(made, run_of(made)).outcome is Outcome.SAME
    assert only_record(store).stat().st_ino == inode
    assert len(store.actions.runs(KEY)) == 2
    assert store.actions.divergences(KEY) == []


def test_a_differing_rebuild_is_kept_beside_the_first(store: Store) -> None:
    first, second, third = (realise(store, data) for data in (b"first", b"second", b"third"))
    store.actions.record(first, run_of(first))
    recorded = store.actions.record(second, run_of(second))
    assert (recorded.outcome, recorded.current) == (Outcome.DIVERGED, first)
    store.actions.record(second, run_of(second))
    store.actions.record(third, run_of(third))
    assert store.actions.lookup(KEY) == first
    assert store.actions.divergences(KEY) == [second, third]
    names = sorted(os.listdir(store.layout.action(KEY)))
    operator = store.key.keyid
    assert names == [f"{operator}.divergence-1.json", f"{operator}.divergence-2.json", f"{operator}.json"]


def test_a_first_whose_bytes_are_gone_gives_way_and_stays_on_record(store: Store) -> None:
    first, second = realise(store, b"first"), realise(store, b"second")
    store.actions.record(first, run_of(first))
    store.cas.path(first.outputs["out"].digest).unlink()
    recorded = store.actions.record(second, run_of(second))
    assert (recorded.outcome, recorded.current) == (Outcome.REPLACED, second)
    assert store.actions.lookup(KEY) == second
    assert store.actions.divergences(KEY) == [first]


def test_lost_or_damaged_outputs_are_noticed(store: Store, tmp_path: Path) -> None:
    file_with(tmp_path / "made" / "deep" / "f", b"nested")
    info = store_tree(store.cas, tmp_path / "made")
    made = Realisation(KEY, {"model": Output("dir", info.digest, "model", info.size)})
    assert store.actions.outputs_present(made)
    overwrite(store.cas.path(hash_bytes(b"nested")), flip)
    assert not store.actions.outputs_present(made)
    wrong_size = Realisation(KEY, {"out": Output("file", store.cas.put_bytes(b"four"), "out", 5)})
    assert not store.actions.outputs_present(wrong_size)


def test_a_flipped_bit_anywhere_in_a_record_is_a_miss(store: Store) -> None:
    made = realise(store, b"output")
    store.actions.record(made, run_of(made))
    data = only_record(store).read_bytes()
    for place in range(0, len(data), 7):
        overwrite(only_record(store), lambda old, at=place: old[:at] + flip(old[at:]))  # type: ignore[misc]
        assert store.actions.lookup(KEY) is None, place
        assert not only_record(store).exists()
        store.actions.record(made, run_of(made))
    assert store.actions.lookup(KEY) == made
    assert len(os.listdir(store.layout.quarantine)) == len(range(0, len(data), 7))


def test_a_truncated_or_misplaced_record_is_a_miss(store: Store) -> None:
    made = realise(store, b"output")
    store.actions.record(made, run_of(made))
    other = hash_bytes(b"another action")
    elsewhere = store.layout.action(other) / only_record(store).name
    file_with(elsewhere, only_record(store).read_bytes())
    os.utime(elsewhere, ns=SEAL_TIMES)
    assert store.actions.lookup(other) is None  # signed and sealed, but about another key
    overwrite(only_record(store), lambda data: data[: len(data) // 2])
    assert store.actions.lookup(KEY) is None


def test_storing_over_a_damaged_record_mends_it(store: Store) -> None:
    made = realise(store, b"output")
    store.actions.record(made, run_of(made))
    overwrite(only_record(store), flip)
    assert store.actions.record(made, run_of(made)).outcome is Outcome.FIRST
    assert store.actions.lookup(KEY) == made


def another_operator(monkeypatch: pytest.MonkeyPatch, store: Store, tmp_path: Path) -> Store:
    monkeypatch.setenv("MXT_KEY_FILE", str(tmp_path / "theirs" / "key"))
    return Store(store.root)


def test_anothers_result_is_used_if_its_signature_holds(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = realise(store, b"theirs")
    store.actions.record(made, run_of(made))
    me = another_operator(monkeypatch, store, tmp_path)
    assert me.key.keyid != store.key.keyid
    found = me.actions.lookup(KEY)
    assert found == made
    assert found is not None
    assert found.operator == store.key.keyid
    mine = realise(me, b"mine")
    assert me.actions.record(mine, run_of(mine)).outcome is Outcome.FIRST
    assert me.actions.lookup(KEY) == mine
    assert store.actions.lookup(KEY) == made


def test_a_forged_result_of_another_is_not_used(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = realise(store, b"theirs")
    store.actions.record(made, run_of(made))
    form = load(only_record(store).read_bytes())
    evil = store.cas.put_bytes(b"evil")
    form["payload"]["outputs"]["out"] |= {"digest": evil, "size": 4}
    overwrite(only_record(store), lambda _: dump(form))
    os.utime(only_record(store), ns=SEAL_TIMES)
    me = another_operator(monkeypatch, store, tmp_path)
    assert me.actions.lookup(KEY) is None
    assert not only_record(store).exists()


def test_a_result_of_a_stranger_is_neither_believed_nor_destroyed(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = realise(store, b"theirs")
    store.actions.record(made, run_of(made))
    (store.layout.state / "operators" / store.key.keyid).unlink()
    me = another_operator(monkeypatch, store, tmp_path)
    assert me.actions.lookup(KEY) is None
    assert only_record(store).exists()


@pytest.mark.parametrize(
    "change",
    [
        {"path": "../../x"},
        {"path": "/etc/passwd"},
        {"path": ""},
        {"path": "a//b"},
        {"kind": "link"},
        {"size": -1},
        {"size": 1.5},
        {"executable": 1},
        {"digest": "../x"},
        {"digest": None},
        {"more": 1},
    ],
)
def test_a_realisation_that_could_do_harm_does_not_parse(store: Store, change: dict[str, object]) -> None:
    payload = realise(store, b"output").payload()
    assert Realisation.parse(payload)
    payload["outputs"]["out"] |= change
    with pytest.raises(ValueError):
        Realisation.parse(payload)


def test_outputs_inside_each_other_do_not_parse() -> None:
    outputs = {name: Output("dir", KEY, path, 0) for name, path in (("a", "x"), ("b", "x-y"), ("c", "x/z"))}
    with pytest.raises(ValueError, match="outputs collide at 'x'"):
        Realisation.parse(Realisation(KEY, outputs).payload())
    del outputs["c"]
    assert Realisation.parse(Realisation(KEY, outputs).payload())


def test_a_thousand_small_outputs(store: Store, tmp_path: Path) -> None:
    made = [file_with(tmp_path / "made" / str(number), f"output {number}") for number in range(1000)]
    realisations = []
    for number, path in enumerate(made):
        found = store.cas.store_file(path)
        key = hash_bytes(b"key %d" % number)
        realisation = Realisation(key, {"out": Output("file", found.digest, "out", found.size)})
        store.actions.record(realisation, run_of(realisation))
        realisations.append(realisation)
    for realisation in realisations:
        assert store.actions.lookup(realisation.key) == realisation
        assert store.actions.outputs_present(realisation)


def test_a_store_that_cannot_be_written_says_so(store: Store) -> None:
    made = realise(store, b"output")
    file_with(store.root / "runs", b"in the way")
    with pytest.raises(StoreError, match="cannot record what an action made: not a directory") as caught:
        store.actions.record(made, run_of(made))
    assert "--store" in caught.value.hint
