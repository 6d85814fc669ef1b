"""Hashes many files at once, each inode once: outputs are links to the blobs that they came from."""

from __future__ import annotations

import hashlib
import os
import stat
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from blake3 import blake3

from mxt.errors import StoreError
from mxt.store.digest import Digest, FileHash, open_regular

Progress = Callable[[int, int], None]
Inode = tuple[int, int]

_CHUNK = 8 << 20


class HashingError(Exception):
    """A file that is not there or cannot be read; its text says so in a few words."""


class Hashing:
    """Ask for files with `want`, `run` once, then get what was found with `of`."""

    def __init__(self) -> None:
        self._inodes: dict[str, Inode] = {}
        self._places: dict[Inode, str] = {}
        self._sizes: dict[Inode, int] = {}
        self._sha256: set[Inode] = set()
        self._found: dict[Inode, FileHash | HashingError] = {}
        self._missing: dict[str, HashingError] = {}
        self._done = 0
        self._lock = threading.Lock()

    @property
    def total(self) -> int:
        """Bytes to be read."""
        return sum(self._sizes.values())

    def want(self, path: str | os.PathLike[str], *, sha256: bool = False) -> bool:
        """Whether there is a regular file at path; if so it is going to be hashed."""
        text = os.fspath(path)
        try:
            facts = os.lstat(text)
        except FileNotFoundError:
            self._missing[text] = HashingError("missing")
            return False
        except OSError as error:
            self._missing[text] = HashingError((error.strerror or str(error)).lower())
            return False
        if not stat.S_ISREG(facts.st_mode):
            self._missing[text] = HashingError("not a regular file")
            return False
        inode = (facts.st_dev, facts.st_ino)
        self._inodes[text] = inode
        self._places.setdefault(inode, text)
        self._sizes[inode] = facts.st_size
        if sha256:
            self._sha256.add(inode)
        return True

    def run(self, progress: Progress | None = None) -> None:
        """Read everything that was wanted, largest files first. progress: (bytes done, bytes in all)."""
        total = self.total
        largest_first = sorted(self._places, key=lambda inode: -self._sizes[inode])
        workers = max(1, min(os.cpu_count() or 1, 16))

        def read(inode: Inode) -> None:
            def advance(count: int) -> None:
                with self._lock:
                    self._done += count
                    if progress is not None:
                        progress(min(self._done, total), total)

            try:
                self._found[inode] = _hash(self._places[inode], inode in self._sha256, advance)
            except OSError as error:
                self._found[inode] = HashingError((error.strerror or str(error)).lower())
            except StoreError as error:
                self._found[inode] = HashingError(error.message)

        with ThreadPoolExecutor(workers, thread_name_prefix="verify") as pool:
            list(pool.map(read, largest_first))

    def of(self, path: str | os.PathLike[str]) -> FileHash:
        """What was found. Raises HashingError where the file is missing or unreadable."""
        text = os.fspath(path)
        found = self._missing.get(text) or self._found[self._inodes[text]]
        if isinstance(found, HashingError):
            raise found
        return found


def _hash(path: str, sha256: bool, advance: Callable[[int], None]) -> FileHash:
    """One pass over a file, whatever is remembered of it; both digests of a chunk at the same time."""
    hasher = blake3(max_threads=blake3.AUTO)
    other = hashlib.sha256() if sha256 else None
    size = 0
    fd = open_regular(path)
    try:
        buffer = bytearray(min(_CHUNK, max(1, os.fstat(fd).st_size)))
        view = memoryview(buffer)
        with ThreadPoolExecutor(1, thread_name_prefix="sha256") as beside:
            while got := os.readv(fd, [view]):
                window = view[:got]
                # small chunks are done before a thread would have begun
                both = beside.submit(other.update, window) if other is not None and got >= 1 << 20 else None
                hasher.update(window)
                if both is not None:
                    both.result()
                elif other is not None:
                    other.update(window)
                size += got
                advance(got)
    finally:
        os.close(fd)
    return FileHash(Digest.of(hasher), size, other.hexdigest() if other is not None else "")
