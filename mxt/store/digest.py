"""A digest is a type: 64 lower-case hex characters of plain BLAKE3, as `b3sum` prints them."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, NamedTuple

import blake3 as blake3_package
from blake3 import blake3

from mxt.errors import StoreError

if TYPE_CHECKING:
    import hashlib
    from typing import Self  # a checkpoint's writer may be Python 3.10

# Above this, several threads pay for themselves; below it, one read is the fastest way.
_WHOLE = 1 << 20
_CHUNK = 1 << 20
# from here on a process of its own, which takes 20 ms to start, is worth it
_MAP_FROM = 256 << 20


class Digest(str):
    """64 lower-case hex characters; anything else raises ValueError."""

    __slots__ = ()

    def __new__(cls, text: object) -> Self:
        if not isinstance(text, str) or len(text) != 64 or text.strip("0123456789abcdef"):
            raise ValueError(f"not a digest: {text!r}")
        return super().__new__(cls, text)

    @staticmethod
    def of(hasher: blake3) -> Digest:
        """The digest of everything the hasher has seen; no check, it cannot be malformed."""
        return str.__new__(Digest, hasher.hexdigest())


EMPTY = Digest.of(blake3(b""))


class FileHash(NamedTuple):
    """What one pass over a file found. size: bytes. sha256: 64 hex characters, or "" if not asked for."""

    digest: Digest
    size: int
    sha256: str = ""


def hash_bytes(data: bytes | memoryview) -> Digest:
    """The digest of data."""
    return Digest.of(blake3(data))


def hash_file(path: str | os.PathLike[str], *, sha256: bool = False) -> FileHash:
    """Digest and size of a regular file, in one pass and bounded memory.

    sha256: compute that too, for formats that do not know BLAKE3.
    Raises OSError where it cannot be read, StoreError where it is no regular file.
    """
    fd = open_regular(path)
    try:
        return hash_fd(fd, sha256=True) if sha256 else hash_whole(fd)
    finally:
        os.close(fd)


def hash_whole(fd: int) -> FileHash:
    """Digest and size of the file that fd, at its beginning, is open on.

    Reads instead of mapping, as a mapped file that someone truncates kills the process; a large one is
    mapped by a process of its own, which takes half the time.
    """
    return _hash_mapped(fd) or hash_fd(fd)


def hash_small(fd: int, size: int) -> FileHash | None:
    """The hash of a file of `size` bytes in one read; None where it is large, or has another size by now.

    A buffer of the file's own size and no read to see its end: 7 % less CPU time for 20,000 of 4 KiB.
    """
    if size >= _WHOLE:
        return None
    data = os.read(fd, size + 1)  # one more: a shorter read of a regular file is its end
    return FileHash(hash_bytes(data), size) if len(data) == size else None


_MAPPED = """
import sys
sys.path.append(sys.argv[1])
from blake3 import blake3
hasher = blake3(max_threads=blake3.AUTO)
hasher.update_mmap(f"/proc/self/fd/{sys.argv[2]}")
print(hasher.hexdigest())
"""


def _hash_mapped(fd: int) -> FileHash | None:
    """The hash of a large file; None of a small one, and where that process failed, whatever the reason."""
    import subprocess
    import sys

    before = os.fstat(fd)
    if before.st_size < _MAP_FROM:
        return None
    packages = os.path.dirname(os.path.dirname(str(blake3_package.__file__)))
    command = [sys.executable, "-I", "-S", "-c", _MAPPED, packages, str(fd)]
    try:
        done = subprocess.run(
            command,
            pass_fds=[fd],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=False,
        )
    except OSError:
        return None
    text = done.stdout.decode("ascii", "replace").strip()
    if done.returncode or len(text) != 64 or os.fstat(fd).st_size != before.st_size:
        return None
    return FileHash(str.__new__(Digest, text), before.st_size)


def hash_fd(fd: int, *, sha256: bool = False, length: int | None = None) -> FileHash:
    """As hash_file, from the current position of fd to its end, or length bytes of it."""
    want = _WHOLE if length is None else min(length, _WHOLE)
    data = os.read(fd, want)
    if len(data) < want or want == length:
        # a short read of a regular file is its end; one more read makes sure
        rest = b"" if want == length else os.read(fd, _WHOLE)
        if not rest:
            other = _sha256(data).hexdigest() if sha256 else ""
            return FileHash(hash_bytes(data), len(data), other)
        data += rest
    hasher = blake3(data, max_threads=blake3.AUTO)
    second = _sha256(data) if sha256 else None
    size = len(data)
    buffer = bytearray(_CHUNK)
    view = memoryview(buffer)
    while length is None or size < length:
        window = view if length is None else view[: min(_CHUNK, length - size)]
        got = os.readv(fd, [window])
        if not got:
            break
        hasher.update(view[:got])
        if second is not None:
            second.update(view[:got])
        size += got
    return FileHash(Digest.of(hasher), size, second.hexdigest() if second is not None else "")


def _sha256(data: bytes) -> hashlib._Hash:
    import hashlib  # loads OpenSSL: 3 ms that most builds need not pay

    return hashlib.sha256(data)


def open_regular(path: str | os.PathLike[str]) -> int:
    """A read-only descriptor of a regular file; never blocks on a pipe. The caller closes it."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    mode = os.fstat(fd).st_mode
    if not stat.S_ISREG(mode):
        os.close(fd)
        raise StoreError(f"{os.fspath(path)!r} is {kind_of(mode)}, not a regular file")
    return fd


def kind_of(mode: int) -> str:
    """The kind of a file by its st_mode, in words, with its article."""
    for test, words in (
        (stat.S_ISREG, "a regular file"),
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISLNK, "a symlink"),
        (stat.S_ISFIFO, "a named pipe"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISCHR, "a character device"),
        (stat.S_ISBLK, "a block device"),
    ):
        if test(mode):
            return words
    return "a special file"
