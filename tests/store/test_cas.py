from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mxt.errors import StoreError
from mxt.store import MissingBlob, Store, hash_bytes
from mxt.store.layout import is_sealed

from .conftest import file_with, flip, overwrite

Python = Callable[..., "subprocess.CompletedProcess[str]"]
Wrap = Callable[..., tuple[str, ...]]


def test_bytes_come_back(store: Store) -> None:
    digest = store.cas.put_bytes(b"some bytes")
    assert digest == hash_bytes(b"some bytes")
    assert store.cas.read(digest) == b"some bytes"
    assert store.cas.has(digest)
    assert store.cas.has(digest, 10)
    assert os.listdir(store.layout.tmp) == []


def test_a_blob_is_read_only_and_sealed(store: Store) -> None:
    digest = store.cas.put_bytes(b"some bytes")
    facts = store.cas.path(digest).stat()
    assert stat.S_IMODE(facts.st_mode) == 0o444
    assert is_sealed(facts)


def test_an_adopted_file_becomes_the_blob_without_a_copy(store: Store, tmp_path: Path) -> None:
    made = file_with(tmp_path / "made", b"output")
    inode = made.stat().st_ino
    found = store.cas.store_file(made)
    assert store.cas.path(found.digest).stat().st_ino == inode == made.stat().st_ino
    assert stat.S_IMODE(made.stat().st_mode) == 0o444


def test_equal_outputs_share_one_inode(store: Store, tmp_path: Path) -> None:
    one, two = file_with(tmp_path / "one", b"same"), file_with(tmp_path / "two", b"same")
    digest = store.cas.store_file(one).digest
    store.cas.store_file(two)
    assert one.stat().st_ino == two.stat().st_ino == store.cas.path(digest).stat().st_ino
    assert sorted(os.listdir(tmp_path)) == ["cache", "one", "two"]


def test_the_executable_form_is_another_inode(store: Store, tmp_path: Path) -> None:
    digest = store.cas.store_file(file_with(tmp_path / "tool", b"#!/bin/sh\n", 0o755)).digest
    assert stat.S_IMODE(store.cas.path(digest, executable=True).stat().st_mode) == 0o555
    assert not store.cas.path(digest).exists()
    assert store.cas.has(digest)
    store.cas.link_out(digest, tmp_path / "plain")
    store.cas.link_out(digest, tmp_path / "again", executable=True)
    assert stat.S_IMODE((tmp_path / "plain").stat().st_mode) == 0o444
    assert (tmp_path / "again").stat().st_ino == store.cas.path(digest, executable=True).stat().st_ino


def test_a_file_with_other_links_is_copied_for_chmod_would_reach_them(store: Store, tmp_path: Path) -> None:
    source = file_with(tmp_path / "source", b"mine", 0o644)
    made = tmp_path / "made"
    os.link(source, made)
    digest = store.cas.store_file(made).digest
    assert stat.S_IMODE(source.stat().st_mode) == 0o644
    assert not is_sealed(source.stat())
    assert made.stat().st_ino == store.cas.path(digest).stat().st_ino != source.stat().st_ino


def test_an_output_that_is_a_blob_already_stays_as_it_is(store: Store, tmp_path: Path) -> None:
    digest = store.cas.put_bytes(b"input")
    made = tmp_path / "made"
    store.cas.link_out(digest, made)
    assert store.cas.store_file(made).digest == digest
    assert made.read_bytes() == b"input"
    assert os.listdir(tmp_path).count("made") == 1


def test_a_source_file_is_copied_and_left_alone(store: Store, tmp_path: Path) -> None:
    source = file_with(tmp_path / "source", b"text" * 1000, 0o664)
    before = source.stat()
    store.cas.copy_in(source, hash_bytes(b"text" * 1000))
    after = source.stat()
    assert (after.st_ino, after.st_mode, after.st_mtime_ns) == (
        before.st_ino,
        before.st_mode,
        before.st_mtime_ns,
    )
    assert store.cas.read(hash_bytes(b"text" * 1000)) == b"text" * 1000


def test_a_source_file_that_changed_is_not_stored(store: Store, tmp_path: Path) -> None:
    source = file_with(tmp_path / "source", b"new")
    with pytest.raises(StoreError, match="the file changed while it was read"):
        store.cas.copy_in(source, hash_bytes(b"old"))
    assert not store.cas.has(hash_bytes(b"old"))
    assert os.listdir(store.layout.tmp) == []


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda path: overwrite(path, flip), id="one bit flipped"),
        pytest.param(lambda path: overwrite(path, lambda data: data[:-1]), id="truncated"),
        pytest.param(lambda path: overwrite(path, lambda _: b""), id="emptied"),
        pytest.param(lambda path: overwrite(path, lambda data: data + b"x"), id="appended"),
        pytest.param(lambda path: (path.unlink(), path.mkdir()), id="a folder in its place"),
        pytest.param(
            lambda path: (path.unlink(), path.symlink_to("/etc/hostname")), id="a symlink in its place"
        ),
        pytest.param(lambda path: path.unlink(), id="removed"),
    ],
)
@pytest.mark.parametrize("size", [None, 10])
def test_a_damaged_blob_is_a_miss_and_can_be_stored_again(
    store: Store, damage: Callable[[Path], object], size: int | None
) -> None:
    digest = store.cas.put_bytes(b"some bytes")
    path = store.cas.path(digest)
    damage(path)
    gone = not os.path.lexists(path)
    assert not store.cas.has(digest, size)
    assert not os.path.lexists(path)
    assert gone or len(os.listdir(store.layout.quarantine)) == 1
    with pytest.raises(MissingBlob):
        store.cas.read(digest)
    store.cas.put_bytes(b"some bytes")
    assert store.cas.has(digest, size)
    assert store.cas.read(digest) == b"some bytes"


def test_damage_that_keeps_its_time_is_found_by_verify_and_read(store: Store) -> None:
    for check in (store.cas.verify, store.cas.read):
        digest = store.cas.put_bytes(b"some bytes")
        path = store.cas.path(digest)
        facts = path.stat()
        overwrite(path, flip)
        os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
        assert store.cas.has(digest)  # one lstat cannot know
        try:
            assert check(digest) is False
        except MissingBlob:
            pass
        assert not path.exists()


def test_a_blob_that_was_only_touched_is_sealed_again(store: Store) -> None:
    digest = store.cas.put_bytes(b"some bytes")
    path = store.cas.path(digest)
    path.chmod(0o644)
    os.utime(path)
    assert store.cas.has(digest)
    assert is_sealed(path.stat())
    assert stat.S_IMODE(path.stat().st_mode) == 0o444


def test_storing_over_a_damaged_blob_mends_it(store: Store, tmp_path: Path) -> None:
    digest = store.cas.put_bytes(b"some bytes")
    overwrite(store.cas.path(digest), flip)
    store.cas.store_file(file_with(tmp_path / "made", b"some bytes"))
    assert store.cas.read(digest) == b"some bytes"


def test_link_out_of_a_missing_blob_says_so(store: Store, tmp_path: Path) -> None:
    with pytest.raises(MissingBlob, match="is missing or damaged"):
        store.cas.link_out(hash_bytes(b"never stored"), tmp_path / "out")


def test_many_at_once_store_the_same_blobs(store: Store, tmp_path: Path) -> None:
    def work(worker: int) -> None:
        for number in range(60):
            made = file_with(tmp_path / f"{worker}" / f"{number}", f"blob {number}")
            digest = store.cas.store_file(made).digest
            assert store.cas.has(digest, made.stat().st_size)
            assert made.read_text() == f"blob {number}"

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    blobs = [path for path in (store.root / "cas").rglob("*") if path.is_file()]
    assert len(blobs) == 60
    assert all(hash_bytes(path.read_bytes()) == path.name for path in blobs)
    assert os.listdir(store.layout.tmp) == []
    assert not store.layout.quarantine.exists()


def test_an_inode_that_has_all_its_links_is_copied(store: Store, tmp_path: Path) -> None:
    digest = store.cas.put_bytes(b"")
    blob = store.cas.path(digest)
    (tmp_path / "links").mkdir()
    try:
        for number in range(70_000):
            os.link(blob, tmp_path / "links" / str(number))
    except OSError:
        pass
    else:
        pytest.skip("this filesystem sets no low limit to links")
    store.cas.link_out(digest, tmp_path / "one more")
    assert (tmp_path / "one more").stat().st_ino != blob.stat().st_ino
    assert is_sealed((tmp_path / "one more").stat())


def test_another_filesystem_means_copy(tmp_path: Path, bwrap: Wrap, in_python: Python) -> None:
    (tmp_path / "other").mkdir()
    script = """
import os, sys
from pathlib import Path
from mxt.store import Store
store = Store(sys.argv[1]).create()
made = Path(sys.argv[2]) / "made"
made.write_bytes(b"output")
made.chmod(0o755)
found = store.cas.store_file(made)
assert made.stat().st_dev != store.root.stat().st_dev
assert store.cas.read(found.digest) == b"output"
out = Path(sys.argv[2]) / "out"
store.cas.link_out(found.digest, out, executable=True)
assert out.read_bytes() == b"output" and os.access(out, os.X_OK) and out.stat().st_nlink == 1
print("fine", os.listdir(store.layout.tmp))
"""
    done = in_python(
        script, tmp_path / "cache", tmp_path / "other", wrap=bwrap("--tmpfs", tmp_path / "other")
    )
    assert done.stdout == "fine []\n", done.stderr
