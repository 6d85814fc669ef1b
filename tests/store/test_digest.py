from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from blake3 import blake3

from mxt.errors import StoreError
from mxt.store import Digest, hash_bytes, hash_file


def test_a_digest_parses_strictly() -> None:
    good = blake3(b"x").hexdigest()
    assert Digest(good) == good
    for bad in (
        good[:-1],
        good + "0",
        good.upper(),
        "g" + good[1:],
        " " + good[1:],
        "",
        7,
        None,
        good.encode(),
    ):
        with pytest.raises(ValueError, match="not a digest"):
            Digest(bad)


@pytest.mark.parametrize("size", [0, 1, 4096, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, (9 << 20) + 5])
def test_a_file_has_the_digest_of_its_bytes_whatever_its_size(tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    path = tmp_path / "file"
    path.write_bytes(data)
    found = hash_file(path, sha256=True)
    assert found == (blake3(data).hexdigest(), size, hashlib.sha256(data).hexdigest())
    assert hash_file(path).digest == hash_bytes(data)


@pytest.mark.skipif(shutil.which("b3sum") is None, reason="needs b3sum")
def test_b3sum_agrees(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"hello\n" * 1_000_000)
    printed = subprocess.run(["b3sum", "--no-names", path], capture_output=True, text=True, check=True).stdout
    assert hash_file(path).digest == printed.strip()


def test_what_is_no_regular_file_is_refused_without_blocking(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StoreError, match="is a named pipe, not a regular file"):
        hash_file(tmp_path / "pipe")
    with pytest.raises(StoreError, match="is a folder"):
        hash_file(tmp_path)
