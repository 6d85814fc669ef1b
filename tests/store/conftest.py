"""A store of its own and an operator key of its own for each test."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mxt.store import Store

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def operator_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "config" / "key"
    monkeypatch.setenv("MXT_KEY_FILE", str(path))
    return path


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "cache").create() as opened:
        yield opened


@pytest.fixture
def in_python(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a script in a process of its own; wrap: a command to put in front."""

    def run(script: str, *arguments: object, wrap: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        command = [*wrap, sys.executable, "-c", script, *map(str, arguments)]
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)

    return run


@pytest.fixture
def bwrap() -> Callable[..., tuple[str, ...]]:
    """A command prefix for a private view of the machine: small, read-only or separate filesystems."""
    if shutil.which("bwrap") is None:
        pytest.skip("needs bubblewrap")

    def prefix(*options: object) -> tuple[str, ...]:
        return ("bwrap", "--dev-bind", "/", "/", *map(str, options))

    return prefix


def file_with(path: Path, data: bytes | str = b"", mode: int = 0o644) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    path.chmod(mode)
    return path


def overwrite(path: Path, change: Callable[[bytes], bytes]) -> None:
    """Damage a read-only file in place, as a stray program or a bad disk would: same inode, same name."""
    mode = path.stat().st_mode
    path.chmod(0o644)
    data = change(path.read_bytes())
    with open(path, "r+b") as file:
        file.write(data)
        file.truncate()
    path.chmod(mode)


def flip(data: bytes) -> bytes:
    return bytes([data[0] ^ 1]) + data[1:]
