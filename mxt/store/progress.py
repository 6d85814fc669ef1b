"""Checkpoints of an unfinished action: whole or not there, and known to be whole when they are read.

    checkpoints = Checkpoints(run.progress)
    if (last := checkpoints.newest()) is not None:
        resume_from(last.path)
    ...
    checkpoints.save("step-100", lambda folder: model.save(folder))
    checkpoints.prune(keep=2)

On the disk, 000007/ holds step-100/ and manifest.json with the digest of every file. It is written
aside, synced, and renamed. A later one has a higher number, whatever its name.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Checkpoint:
    """A saved state that verified. path: the folder that the writer filled."""

    name: str
    path: Path
    number: int


class Checkpoints:
    """The checkpoints in one folder, which one process at a time writes."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    def save(self, name: str, writer: Callable[[Path], object]) -> Checkpoint:
        """Call writer with an empty folder to fill, and keep that. Nothing is left of one that fails.

        name: one path component. Raises what writer raises, OSError on a full disk.
        """
        if not name or "/" in name or name in (".", "..", _MANIFEST):
            raise ValueError(f"a checkpoint cannot be named {name!r}")
        number = max((number for number, _ in self._numbered()), default=0) + 1
        aside = self.folder / f".{number:06d}.{os.urandom(4).hex()}"
        (aside / name).mkdir(parents=True)
        try:
            writer(aside / name)
            form: dict[str, object] = {"version": 1, "name": name}
            if not _has_blake3():
                form["hash"] = "sha256"
            form["files"] = _digests(aside / name, sync=True, sha256="hash" in form)
            text = json.dumps(form, sort_keys=True)
            _write_synced(aside / _MANIFEST, text.encode())
            _sync_folder(aside)
            final = self.folder / f"{number:06d}"
            os.rename(aside, final)
            _sync_folder(self.folder)
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise
        return Checkpoint(name, final / name, number)

    def newest(self) -> Checkpoint | None:
        """The newest checkpoint, every byte of it verified; damaged ones on the way are set aside."""
        for number, path in reversed(self._numbered()):
            found = _verified(path, number)
            if found is not None:
                return found
            with contextlib.suppress(OSError):
                os.rename(path, self.folder / f".damaged-{path.name}.{os.urandom(4).hex()}")
        return None

    def prune(self, keep: int = 1) -> None:
        """Remove all but the `keep` newest, and what interrupted writers and damage left behind."""
        if keep < 1:
            raise ValueError("at least one checkpoint must be kept")
        for _, path in self._numbered()[:-keep]:
            # renamed first: half a removed checkpoint must not look like a damaged one
            gone = self.folder / f".gone-{path.name}.{os.urandom(4).hex()}"
            with contextlib.suppress(OSError):
                os.rename(path, gone)
        for path in self.folder.iterdir() if self.folder.is_dir() else ():
            if path.name.startswith("."):
                shutil.rmtree(path, ignore_errors=True)

    def _numbered(self) -> list[tuple[int, Path]]:
        if not self.folder.is_dir():
            return []
        return sorted((int(path.name), path) for path in self.folder.iterdir() if path.name.isdigit())


def damaged_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in a folder that do not verify, every byte read; nothing is set aside."""
    return [path for number, path in Checkpoints(folder)._numbered() if _verified(path, number) is None]


def _verified(path: Path, number: int) -> Checkpoint | None:
    try:
        form = json.loads((path / _MANIFEST).read_bytes())
        name, files = form["name"], form["files"]
        if form["version"] != 1 or not isinstance(name, str) or "/" in name or name in ("", ".", ".."):
            return None
        if files != _digests(path / name, sync=False, sha256=form.get("hash") == "sha256"):
            return None
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return Checkpoint(name, path / name, number)


def _has_blake3() -> bool:
    """A container image's own Python mostly has none; manifests written there say that they are SHA-256."""
    from importlib.util import find_spec

    return find_spec("blake3") is not None


def _sha256(fd: int) -> tuple[str, int]:
    import hashlib

    hasher, size = hashlib.sha256(), 0
    while chunk := os.read(fd, 1 << 20):
        hasher.update(chunk)
        size += len(chunk)
    return hasher.hexdigest(), size


def _blake3(fd: int) -> tuple[str, int]:
    from mxt.store.digest import hash_fd  # late: whoever only mentions checkpoints does not pay for blake3

    found = hash_fd(fd)
    return str(found.digest), found.size


def _digests(folder: Path, *, sync: bool, sha256: bool) -> dict[str, list[object]]:
    """{relative path: [digest, size]} of all files; sync: force files and folders to the disk as well."""
    if not folder.is_dir():
        raise FileNotFoundError(folder)
    out: dict[str, list[object]] = {}
    for place, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(place, name)
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
            try:
                if sync:
                    os.fsync(fd)
                found = _sha256(fd) if sha256 else _blake3(fd)
            finally:
                os.close(fd)
            out[os.path.relpath(path, folder)] = list(found)
        if sync:
            _sync_folder(place)
    return out


def _write_synced(path: Path, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(path: str | os.PathLike[str]) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):  # some filesystems cannot; then nobody can
            os.fsync(fd)
    finally:
        os.close(fd)
