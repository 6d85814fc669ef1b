"""Cutting a text file after every N lines, so that one changed row touches one piece only."""

from __future__ import annotations

import os
from typing import NamedTuple

from blake3 import blake3

from mxt.errors import StoreError
from mxt.store.digest import Digest, open_regular
from mxt.store.os_errors import explain_os_error

_CHUNK = 1 << 20


class Slice(NamedTuple):
    """A piece of a file. offset, length: bytes. digest: of its bytes."""

    offset: int
    length: int
    digest: Digest


def cut_lines(fd: int, lines: int) -> list[Slice]:
    r"""The pieces of an open file, each of `lines` lines ending in b"\n"; the last one holds the rest."""
    if lines < 1:
        raise ValueError(f"cannot cut every {lines} lines")
    cuts: list[Slice] = []
    hasher = blake3(max_threads=blake3.AUTO)
    start = length = 0
    missing = lines
    while chunk := os.read(fd, _CHUNK):
        view = memoryview(chunk)
        begin = 0
        while begin < len(chunk):
            end, seen = _after_lines(chunk, begin, missing)
            hasher.update(view[begin:end])
            length += end - begin
            missing -= seen
            begin = end
            if missing == 0:
                cuts.append(Slice(start, length, Digest.of(hasher)))
                start, length, missing = start + length, 0, lines
                hasher = blake3(max_threads=blake3.AUTO)
    if length:
        cuts.append(Slice(start, length, Digest.of(hasher)))
    return cuts


def _after_lines(chunk: bytes, begin: int, wanted: int) -> tuple[int, int]:
    """(where the wanted-th line end after begin is passed, wanted), or (the chunk's end, line ends seen)."""
    if wanted > 64:  # counting is far faster than finding each; worth it where the chunk may hold too few
        seen = chunk.count(b"\n", begin)
        if seen < wanted:
            return len(chunk), seen
    position = begin
    for seen in range(wanted):
        found = chunk.find(b"\n", position)
        if found < 0:
            return len(chunk), seen
        position = found + 1
    return position, wanted


def copy_slice(path: str | os.PathLike[str], piece: Slice, dest: str | os.PathLike[str]) -> None:
    """Write a piece of a file to dest, which must not exist.

    Raises StoreError when the bytes are not the piece's: the file changed since it was cut.
    """
    with explain_os_error("copy a piece of a source file", path):
        fd = open_regular(path)
        try:
            out = os.open(dest, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            try:
                made = _copy(fd, out, piece)
            finally:
                os.close(out)
        finally:
            os.close(fd)
    if made != piece.digest:
        os.unlink(dest)
        raise StoreError("the file changed during the build", where=os.fspath(path), hint="build again")


def _copy(fd: int, out: int, piece: Slice) -> Digest:
    hasher = blake3(max_threads=blake3.AUTO)
    done = 0
    while done < piece.length:
        chunk = os.pread(fd, min(_CHUNK, piece.length - done), piece.offset + done)
        if not chunk:
            break
        hasher.update(chunk)
        done += len(chunk)
        view = memoryview(chunk)
        while view:
            view = view[os.write(out, view) :]
    return Digest.of(hasher)
