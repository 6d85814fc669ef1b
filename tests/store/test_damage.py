"""Full disks, read-only stores, limits, SIGKILL: the store says what is wrong and holds nothing half."""

from __future__ import annotations

import json
import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mxt.errors import StoreError
from mxt.store import Store, hash_bytes, hash_file, read_tree, store_tree
from mxt.store.realisation import Realisation

from .conftest import REPOSITORY, file_with

Python = Callable[..., "subprocess.CompletedProcess[str]"]
Wrap = Callable[..., tuple[str, ...]]

FILL = """
import os, sys
from pathlib import Path
from mxt.errors import StoreError
from mxt.store import *
store = Store(sys.argv[1]).create()
work = Path(sys.argv[2])
try:
    for number in range(100):
        made = work / str(number)
        made.write_bytes(os.urandom(40_000))
        found = store.cas.store_file(made)
        key = hash_bytes(b"%d" % number)
        realisation = Realisation(key, {"o": Output("file", found.digest, "o", found.size)})
        store.actions.record(realisation, RunRecord(key, realisation.digest, "//p:t", "2026", "1"))
        store.outputs.materialise(realisation)
except StoreError as error:
    print(error)
    for path in (store.root / "cas").rglob("*"):
        assert path.is_dir() or hash_file(path).digest == path.name, path
    print("whole", number > 3, os.listdir(store.layout.tmp))
"""


def test_a_full_disk(tmp_path: Path, bwrap: Wrap, in_python: Python) -> None:
    (tmp_path / "small").mkdir()
    (tmp_path / "work").mkdir()
    small = bwrap("--size", 600_000, "--tmpfs", tmp_path / "small")
    done = in_python(FILL, tmp_path / "small" / "cache", tmp_path / "work", wrap=small)
    message, hint, whole = done.stdout.splitlines()
    assert message.endswith("the disk is full"), done.stdout
    assert "mxt gc" in hint
    assert "--store" in hint
    assert whole == "whole True []"


def test_a_full_disk_below_outputs_and_store(tmp_path: Path, bwrap: Wrap, in_python: Python) -> None:
    """Blobs are links here, so it is the records that find no room."""
    (tmp_path / "small").mkdir()
    script = FILL.replace("os.urandom(40_000)", "b'%d' % number").replace("range(100)", "range(4000)")
    small = bwrap("--size", 600_000, "--tmpfs", tmp_path / "small", "--dir", tmp_path / "small" / "work")
    done = in_python(script, tmp_path / "small" / "cache", tmp_path / "small" / "work", wrap=small)
    assert "whole True []" in done.stdout or "No space left" in done.stderr, (done.stdout, done.stderr)


def test_a_read_only_store(store: Store, tmp_path: Path, bwrap: Wrap, in_python: Python) -> None:
    digest = store.cas.put_bytes(b"was there before")
    (tmp_path / "work").mkdir()
    read_only = bwrap("--ro-bind", store.root, store.root)
    done = in_python(FILL, store.root, tmp_path / "work", wrap=read_only)
    message, hint = done.stdout.splitlines()[:2]
    assert message.endswith("cannot store an output: it is on a read-only filesystem"), done.stdout
    assert "--store" in hint
    look = """
import sys
from mxt.store import Store
store = Store(sys.argv[1]).create()
print(store.cas.read(sys.argv[2]), store.index.digest_of(sys.argv[3]).size, store.actions.lookup(sys.argv[2]))
"""
    source = file_with(tmp_path / "source", b"text")
    done = in_python(look, store.root, digest, source, wrap=read_only)
    assert done.stdout == "b'was there before' 4 None\n", done.stderr


def test_a_damaged_blob_in_a_read_only_store_is_still_a_miss(
    store: Store, bwrap: Wrap, in_python: Python
) -> None:
    digest = store.cas.put_bytes(b"some bytes")
    store.cas.path(digest).chmod(0o644)
    store.cas.path(digest).write_bytes(b"Some bytes")
    script = "import sys; from mxt.store import Store; print(Store(sys.argv[1]).cas.has(sys.argv[2]))"
    done = in_python(script, store.root, digest, wrap=bwrap("--ro-bind", store.root, store.root))
    assert done.stdout == "False\n", done.stderr


def test_a_limit_on_file_size(store: Store, tmp_path: Path, in_python: Python) -> None:
    source = file_with(tmp_path / "source", b"x" * 200_000)
    script = f"""
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, {resource.RLIM_INFINITY}))
from mxt.store import *
try:
    Store(sys.argv[1]).cas.copy_in(sys.argv[2], hash_file(sys.argv[2]).digest)
except Exception as error:
    print(error)
"""
    done = in_python(script, store.root, source)
    assert "larger than this process may write" in done.stdout, done.stderr
    assert os.listdir(store.layout.tmp) == []
    assert not store.cas.has(hash_bytes(b"x" * 200_000))


def test_a_store_cannot_be_where_something_else_is(tmp_path: Path) -> None:
    file_with(tmp_path / "file", b"")
    with pytest.raises(StoreError, match=r"cannot (open|create) the store"):
        Store(tmp_path / "file").create()


def test_a_store_of_a_newer_mxt_is_left_alone(store: Store) -> None:
    (store.root / "format").write_text("mxt store 2\n")
    with pytest.raises(StoreError, match="the store has format 'mxt store 2'"):
        store.create()


def test_a_new_store_is_ignored_by_git_and_keeps_the_readme(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    file_with(tmp_path / "cache" / "README.md", "what this is\n")
    store = Store(tmp_path / "cache").create()
    store.cas.put_bytes(b"blob")
    store.create()
    shown = subprocess.run(
        ["git", "-C", tmp_path, "status", "--porcelain", "-uall"], capture_output=True, text=True, check=True
    ).stdout
    assert shown == "?? cache/README.md\n"
    assert (tmp_path / "cache" / "README.md").read_text() == "what this is\n"


CHURN = """
import random, shutil, sys
from pathlib import Path
from mxt.store import *
store = Store(sys.argv[1]).create()
chance = random.Random(int(sys.argv[2]))
print("go", flush=True)
while True:
    number = chance.randrange(200)
    key = hash_bytes(b"key %d" % number)
    made = Path(store.layout.temporary())
    (made / "deep").mkdir(parents=True)
    for name in ("a", "deep/b", "deep/c"):
        (made / name).write_bytes(b"%s of %d " % (name.encode(), number) * chance.choice([1, 5000]))
    info = store_tree(store.cas, made)
    realisation = Realisation(key, {"d": Output("dir", info.digest, "d", info.size)})
    run = RunRecord(key, realisation.digest, "//p:t", "2026-01-01T00:00:00Z", "1")
    current = store.actions.record(realisation, run).current
    store.outputs.materialise(current)
    store.history.remember("//p:t", str(number), key)
    shutil.rmtree(made)
"""


def test_killed_at_any_moment_nothing_half_written_is_seen(store: Store) -> None:
    """Two writers at a time on the same blobs and keys, killed at moments drawn with a fixed seed."""
    chance = random.Random(2048)
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    for turn in range(12):
        writers = [
            subprocess.Popen(
                [sys.executable, "-c", CHURN, store.root, str(2 * turn + n)],
                env=environment,
                stdout=subprocess.PIPE,
            )
            for n in (0, 1)
        ]
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"go\n"
        for writer in writers:
            time.sleep(chance.uniform(0.0, 0.12))
            writer.kill()
            writer.wait()
            assert writer.stdout is not None
            writer.stdout.close()
        assert_whole(store)
    assert len(list((store.root / "ac").rglob("*.json"))) > 10
    store.collector.collect()
    assert os.listdir(store.layout.tmp) == []
    assert not list((store.root / "cas").rglob("*/*"))


def assert_whole(store: Store) -> None:
    for path in (store.root / "cas").rglob("*/*"):
        assert hash_file(path).digest == path.name.removesuffix(".x")
    for path in (store.root / "ac").rglob("*.json"):
        realisation = Realisation.parse(json.loads(path.read_bytes())["payload"])
        assert store.actions.outputs_present(realisation)
        found = store.actions.lookup(realisation.key)
        assert found is not None
        assert store.actions.runs(realisation.key)
        if path.name == f"{store.key.keyid}.json" and store.layout.out(realisation.key).exists():
            assert store.outputs.intact(realisation)
    for path in (store.root / "out").iterdir() if (store.root / "out").exists() else ():
        assert store.actions.lookup(path.name) is not None
    assert not store.layout.quarantine.exists()


def test_processes_that_adopt_the_same_blobs_agree(store: Store, tmp_path: Path) -> None:
    script = """
import sys
from pathlib import Path
from mxt.store import Store, store_tree
store = Store(sys.argv[1])
work = Path(sys.argv[2])
for turn in range(6):
    folder = work / str(turn)
    folder.mkdir(parents=True)
    for number in range(30):
        (folder / str(number)).write_text(f"blob {turn} {number}")
    print(store_tree(store.cas, folder).digest)
"""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", script, store.root, tmp_path / f"work {n}"],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in range(4)
    ]
    said = {worker.communicate(timeout=60)[0] for worker in workers}
    assert len(said) == 1
    digests = said.pop().split()
    assert len(digests) == 6
    for digest in digests:
        for entry in read_tree(store.cas, digest):
            inodes = {
                path.stat().st_ino for path in tmp_path.glob(f"work */{digests.index(digest)}/{entry.name}")
            }
            assert inodes == {store.cas.path(entry.digest).stat().st_ino}
    assert not store.layout.quarantine.exists()
    again = tmp_path / "work 0" / "0"
    assert store_tree(store.cas, again).digest == digests[0]
