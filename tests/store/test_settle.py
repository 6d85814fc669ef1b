"""Large outputs: hashed by a process of its own, sealed once the disk has them, usable before."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from blake3 import blake3

from mxt.errors import StoreError
from mxt.store import Store
from mxt.store import cas as cas_module
from mxt.store import digest as digest_module
from mxt.store.digest import hash_file, hash_whole
from mxt.store.layout import is_sealed
from mxt.store.realisation import Output, Realisation

KEY = "c" * 64


@pytest.fixture
def data(tmp_path: Path) -> bytes:
    return os.urandom(1 << 20) * 9


def adopted(store: Store, tmp_path: Path, data: bytes) -> tuple[Path, Realisation]:
    folder = tmp_path / "outputs"
    folder.mkdir()
    (folder / "weights").write_bytes(data)
    found = store.cas.store_file(folder / "weights")
    outputs = {"weights": Output("file", found.digest, "weights", found.size)}
    return folder, Realisation(KEY, outputs)


def test_a_blob_is_used_before_the_disk_has_it_and_sealed_after(
    store: Store, tmp_path: Path, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = threading.Event()
    monkeypatch.setattr(cas_module, "_sync", lambda _: go.wait(20))
    store.cas.settle_later = True
    folder, realisation = adopted(store, tmp_path, data)
    digest = realisation.outputs["weights"].digest
    blob = store.cas.path(digest)
    assert not is_sealed(blob.lstat())
    hashed: list[int] = []
    monkeypatch.setattr(cas_module, "hash_whole", lambda fd: hashed.append(fd) or hash_whole(fd))  # type: ignore[func-returns-value]
    place = store.outputs.take_folder(folder, realisation)
    assert store.actions.outputs_present(realisation)
    assert store.outputs.materialise(realisation) == place
    assert store.outputs.intact(realisation)
    assert not hashed, "who adopted it knows what it is"
    assert not list(store.layout.quarantine.glob("*")) if store.layout.quarantine.exists() else True
    # another build sees no seal and looks at the bytes
    assert Store(store.root).cas.has(digest, len(data))
    assert hashed
    go.set()
    store.cas.settle()
    assert is_sealed(blob.lstat())
    assert (place / "weights").lstat().st_ino == blob.lstat().st_ino


def test_what_the_disk_does_not_take_is_an_error_and_no_blob(
    store: Store, tmp_path: Path, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: str) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(cas_module, "_sync", fails)
    store.cas.settle_later = True
    _, realisation = adopted(store, tmp_path, data)
    blob = store.cas.path(realisation.outputs["weights"].digest)
    with pytest.raises(StoreError, match="the disk reports an error"):
        store.cas.settle()
    assert not is_sealed(blob.lstat())
    # what a power cut left of it: the right size, other bytes
    blob.chmod(0o644)
    blob.write_bytes(bytes(len(data)))
    blob.chmod(0o444)
    assert not Store(store.root).actions.outputs_present(realisation)


def test_without_settle_later_the_seal_is_there_at_once(store: Store, tmp_path: Path, data: bytes) -> None:
    _, realisation = adopted(store, tmp_path, data)
    assert is_sealed(store.cas.path(realisation.outputs["weights"].digest).lstat())


def test_a_mapped_hash_is_the_same(tmp_path: Path, data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "f"
    file.write_bytes(data)
    monkeypatch.setattr(digest_module, "hash_fd", None)
    monkeypatch.setattr(digest_module, "_MAP_FROM", 1 << 20)
    assert hash_file(file) == (blake3(data).hexdigest(), len(data), "")


@pytest.mark.parametrize(
    "program",
    ["import sys; sys.exit(1)", "import os; os.kill(os.getpid(), 7)", "print('x' * 64 + 'y')", "print()"],
)
def test_a_mapped_hash_that_fails_is_read(
    tmp_path: Path, data: bytes, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    """7 is SIGBUS: somebody cut the file short."""
    file = tmp_path / "f"
    file.write_bytes(data)
    monkeypatch.setattr(digest_module, "_MAP_FROM", 1 << 20)
    monkeypatch.setattr(digest_module, "_MAPPED", program)
    assert hash_file(file) == (blake3(data).hexdigest(), len(data), "")
