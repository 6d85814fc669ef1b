from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from mxt.action.canonical import dump
from mxt.errors import StoreError
from mxt.store import Output, Realisation, RunRecord, Store, hash_bytes, pin, store_tree, unpin
from mxt.store.tree import tree_present

from .conftest import REPOSITORY, file_with


def build(store: Store, name: str, inputs: tuple[Realisation, ...] = ()) -> Realisation:
    """Record an action whose one output is a folder with a file that says its name."""
    form = dump(
        {
            "entry": name,
            "inputs": {
                str(n): {"kind": "dir", "digest": one.outputs["d"].digest} for n, one in enumerate(inputs)
            },
        }
    )
    key = store.cas.put_bytes(form)
    made = store.layout.temporary()
    file_with(Path(made) / "in" / "f", f"made by {name}")
    info = store_tree(store.cas, made)
    shutil.rmtree(made)
    realisation = Realisation(key, {"d": Output("dir", info.digest, "d", info.size)})
    store.actions.record(
        realisation, RunRecord(key, realisation.digest, f"//p:{name}", "2026-01-01T00:00:00Z", "1")
    )
    store.outputs.materialise(realisation)
    file_with(store.layout.evidence(key, "run") / "log", "log")
    return realisation


def show(store: Store, name: str, realisation: Realisation) -> Path:
    """Link a target into mxt-out, as a build does."""
    out = store.root.parent / "mxt-out"
    store.outputs.register_root(out)
    store.outputs.link_target(out / "p" / name, store.layout.out(realisation.key))
    return out / "p" / name


def usable(store: Store, realisation: Realisation) -> bool:
    found = store.actions.lookup(realisation.key)
    return found == realisation and store.actions.outputs_present(realisation)


def gone(store: Store, realisation: Realisation) -> bool:
    """Whether nothing at all is left of it."""
    return not any(realisation.key in str(path) for path in store.root.rglob("*")) and not store.cas.has(
        realisation.outputs["d"].digest
    )


def test_what_nothing_shows_goes_and_what_is_shown_stays(store: Store) -> None:
    shown, hidden = build(store, "shown"), build(store, "hidden")
    show(store, "shown", shown)
    swept = store.collector.collect()
    assert usable(store, shown)
    assert store.outputs.intact(shown)
    assert gone(store, hidden)
    assert (swept.realisations, swept.outputs) == (1, 1)
    assert swept.blobs == 4  # the form, two folders, the file
    assert swept.bytes > 0
    again = store.collector.collect()
    assert (again.blobs, again.bytes, again.paths) == (0, 0, [])


def test_what_made_the_inputs_stays_so_that_nothing_runs_again(store: Store) -> None:
    first = build(store, "first")
    second = build(store, "second", (first,))
    third = build(store, "third", (second,))
    aside = build(store, "aside", (first,))
    show(store, "third", third)
    store.collector.collect()
    assert all(usable(store, one) for one in (first, second, third))
    assert gone(store, aside)


def test_a_dry_run_says_what_would_go(store: Store) -> None:
    build(store, "hidden")
    before = sorted(store.root.glob("*/**/*/*"))
    planned = store.collector.collect(dry_run=True)
    assert sorted(store.root.glob("*/**/*/*")) == before
    done = store.collector.collect()
    assert (done.blobs, done.bytes, done.paths) == (planned.blobs, planned.bytes, planned.paths)


def test_pins_keep(store: Store) -> None:
    made = build(store, "pinned")
    lone = store.cas.put_bytes(b"a blob of its own")
    file_with(store.root.parent / "folder" / "deep" / "f", b"a file of its own")
    folder = store_tree(store.cas, store.root.parent / "folder")
    for name in (made.key, lone, folder.digest):
        pin(store.layout, name)
    store.collector.collect()
    assert usable(store, made)
    assert store.cas.has(lone)
    assert tree_present(store.cas, folder.digest)
    assert unpin(store.layout, made.key)
    assert not unpin(store.layout, made.key)
    store.collector.collect()
    assert gone(store, made)


def test_another_workspace_of_a_shared_store_keeps_its_own(store: Store, tmp_path: Path) -> None:
    made = build(store, "theirs")
    out = tmp_path / "other workspace" / "mxt-out"
    store.outputs.register_root(out)
    store.outputs.link_target(out / "deep" / "er" / "t", store.layout.out(made.key) / "d")
    store.collector.collect()
    assert usable(store, made)
    shutil.rmtree(out)
    store.collector.collect()
    assert gone(store, made)


def test_moved_together_workspace_and_store_stay_bound(store: Store, tmp_path: Path) -> None:
    made = build(store, "made")
    show(store, "made", made)
    store.close()
    (tmp_path / "new").mkdir()
    (tmp_path / "cache").rename(tmp_path / "new" / "cache")
    (tmp_path / "mxt-out").rename(tmp_path / "new" / "mxt-out")
    with Store(tmp_path / "new" / "cache") as moved:
        moved.collector.collect()
        assert usable(moved, made)
        assert moved.outputs.intact(made)


def test_a_running_build_keeps_what_it_holds_and_what_it_makes(store: Store) -> None:
    held, hidden = build(store, "held"), build(store, "hidden")
    time.sleep(0.05)
    with store.lease() as lease:
        lease.hold([held.key])
        fresh = build(store, "fresh")
        store.collector.collect()
        assert usable(store, held)
        assert usable(store, fresh)
        assert gone(store, hidden)
    store.collector.collect()
    assert gone(store, held)
    assert gone(store, fresh)


def test_a_dead_builds_lease_counts_for_nothing(store: Store) -> None:
    held = build(store, "held")
    script = """
import os, sys
from mxt.store import Store
lease = Store(sys.argv[1]).lease()
lease.hold([sys.argv[2]])
os.kill(os.getpid(), 9)
"""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    subprocess.run([sys.executable, "-c", script, store.root, held.key], env=environment)
    assert len(os.listdir(store.layout.leases)) == 1
    store.collector.collect()
    assert gone(store, held)
    assert os.listdir(store.layout.leases) == []


def test_a_build_waits_for_a_gc_before_it_relies_on_anything(store: Store) -> None:
    lease = store.lease()
    lock = store.locks.exclusive()
    assert lock is not None
    done = threading.Event()
    waiter = threading.Thread(target=lambda: (lease.hold(["k"]), done.set()))
    waiter.start()
    assert not done.wait(0.2)
    lock.release()
    assert done.wait(5)
    waiter.join()
    lease.release()


def test_young_progress_stays_and_old_goes(store: Store) -> None:
    young, old = hash_bytes(b"young"), hash_bytes(b"old")
    for key in (young, old):
        file_with(store.layout.progress(key) / "000001" / "state", b"weights")
    long_ago = time.time() - 15 * 86400
    for path in [store.layout.progress(old), *store.layout.progress(old).rglob("*")]:
        os.utime(path, (long_ago, long_ago))
    swept = store.collector.collect()
    assert swept.progress == 1
    assert store.layout.progress(young).exists()
    assert not store.layout.progress(old).exists()
    store.collector.collect(progress_days=0)
    assert not store.layout.progress(young).exists()


def test_leftovers_of_the_dead_go_and_those_of_the_living_stay(store: Store) -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    file_with(store.layout.tmp / f"{process.pid}-aa-0" / "deep" / "f", b"left")
    (store.layout.tmp / f"{process.pid}-aa-0" / "deep").chmod(0o555)
    mine = file_with(Path(store.layout.temporary()), b"mine")
    file_with(store.layout.quarantine / "x", b"damaged")
    swept = store.collector.collect()
    assert swept.leftovers == 2
    assert os.listdir(store.layout.tmp) == [mine.name]
    assert os.listdir(store.layout.quarantine) == []


def test_the_last_form_of_an_action_stays_for_explain(store: Store) -> None:
    made = build(store, "made")
    store.history.remember("//p:made", "", made.key)
    store.collector.collect()
    assert not usable(store, made)
    assert b'"entry":"made"' in store.cas.read(made.key)


def test_a_record_whose_bytes_stay_anyway_stays_too(store: Store) -> None:
    shown = build(store, "same")
    twin_key = store.cas.put_bytes(dump({"entry": "twin", "inputs": {}}))
    twin = Realisation(twin_key, shown.outputs)
    store.actions.record(twin, RunRecord(twin_key, twin.digest, "//p:twin", "2026-01-01T00:00:00Z", "1"))
    show(store, "same", shown)
    store.collector.collect()
    assert usable(store, twin)


def test_two_at_once_do_not_meet(store: Store) -> None:
    with store.locks.exclusive(), pytest.raises(StoreError, match="another gc is running"):  # type: ignore[union-attr]
        store.collector.collect(timeout_s=0.05)


def test_a_gc_killed_at_any_moment_breaks_no_promise(store: Store) -> None:
    script = """
import sys
from mxt.store import Store
print("go", flush=True)
Store(sys.argv[1]).collector.collect()
"""
    shown = build(store, "shown")
    show(store, "shown", shown)
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    for turn in range(8):
        hidden = [build(store, f"hidden {number}") for number in range(25)]
        process = subprocess.Popen(
            [sys.executable, "-c", script, store.root], env=environment, stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.006 * turn)
        process.kill()
        process.wait()
        process.stdout.close()
        assert usable(store, shown)
        for one in hidden:  # whatever is still on record has all its bytes
            found = store.actions.lookup(one.key)
            assert found is None or store.actions.outputs_present(found)
    store.collector.collect()
    assert usable(store, shown)
    assert all(gone(store, one) for one in hidden)
