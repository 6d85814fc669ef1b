"""Digests of source files by their stat tuple, so that an unchanged workspace is not read again.

Rows are found by (device, inode): a file keeps its row when it, or the whole workspace, is moved.
A row holds only if size, mtime, ctime agree, and only if it was made long enough after the last change
that a later one must show in them (the racy window: clocks tick coarsely, some filesystems in 2 s).
"""

from __future__ import annotations

import json
import os
import stat
import time
from binascii import crc32
from collections.abc import Sequence
from typing import Any, NamedTuple

from mxt.errors import StoreError
from mxt.store.database import Database
from mxt.store.digest import Digest, hash_small, hash_whole, kind_of, open_regular
from mxt.store.layout import Layout
from mxt.store.os_errors import explain_os_error
from mxt.store.slices import Slice, cut_lines
from mxt.store.tree import FileFacts, TreeInfo, build_tree

_SCHEMA = """
CREATE TABLE IF NOT EXISTS files(
  device INTEGER, inode INTEGER, size INTEGER, mtime INTEGER, ctime INTEGER, digest TEXT, sum INTEGER,
  PRIMARY KEY (device, inode)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS slices(
  device INTEGER, inode INTEGER, lines INTEGER, size INTEGER, mtime INTEGER, ctime INTEGER, cuts TEXT,
  sum INTEGER, PRIMARY KEY (device, inode, lines)) WITHOUT ROWID
"""
_FINE_NS = 25_000_000  # two ticks of a kernel's coarse clock at 100 Hz, and some
_COARSE_NS = 2_100_000_000  # FAT and some network filesystems
_MANY = 500
_MAX_ROWS = 2_000_000
_ROW = "SELECT device, inode, size, mtime, ctime, digest, sum FROM files"


class StatTuple(NamedTuple):
    """What must agree for a file to count as unchanged."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    device: int


class SourceFile(NamedTuple):
    """A source file as it was read. racy: it had changed so recently that stat alone cannot vouch for it."""

    digest: Digest
    size: int
    executable: bool
    stat: StatTuple
    racy: bool


class SourceTree(NamedTuple):
    """A source folder as it was read. sources: (absolute path, file) of all its files."""

    info: TreeInfo
    sources: tuple[tuple[str, SourceFile], ...]


class FileIndex:
    """The index of one store. Safe for threads and for several processes; never an authority."""

    def __init__(self, layout: Layout) -> None:
        self._database = Database(layout.index, 2, _SCHEMA)

    def digest_of(self, path: str | os.PathLike[str]) -> SourceFile:
        """The digest of a source file. Raises StoreError where it is missing or no regular file."""
        return self.digest_many([path])[0]

    def digest_many(self, paths: Sequence[str | os.PathLike[str]]) -> list[SourceFile]:
        """As digest_of, for many files in one go; in their order."""
        facts = [self._stat(path) for path in paths]
        known = self._known([(found.st_dev, found.st_ino) for found in facts])
        out: list[SourceFile] = []
        fresh = []
        for path, found in zip(paths, facts, strict=True):
            place = (_signed(found.st_dev), _signed(found.st_ino))
            row = known.get(place)
            seen = (found.st_size, found.st_mtime_ns, found.st_ctime_ns)
            if row is not None and row[:3] == seen and row[4] == _sum(*place, *row[:4]):
                digest = str.__new__(Digest, row[3])
                executable = bool(found.st_mode & stat.S_IXUSR)
                out.append(SourceFile(digest, found.st_size, executable, _tuple(found), False))
                continue
            made = _read(path, found)
            out.append(made)
            if not made.racy:
                fresh.append(_row(made))
        if fresh:
            self._database.write("INSERT OR REPLACE INTO files VALUES (?,?,?,?,?,?,?)", fresh)
        return out

    def tree_digest_of(self, folder: str | os.PathLike[str]) -> SourceTree:
        """The digest of a source folder, as store_tree would give it; nothing is stored.

        Raises StoreError as build_tree does.
        """
        sources: list[tuple[str, SourceFile]] = []

        def hash_all(files: list[str]) -> list[FileFacts]:
            found = self.digest_many(files)
            sources.extend(zip(files, found, strict=True))
            return [FileFacts(one.digest, one.size, one.executable) for one in found]

        with explain_os_error("read a source folder", folder):
            info = build_tree(folder, hash_all)
        return SourceTree(info, tuple(sources))

    def slices(self, path: str | os.PathLike[str], lines: int) -> list[Slice]:
        r"""The pieces of a file cut after every `lines` lines (b"\n"); [] for an empty file.

        Streams: memory does not grow with the file or its longest line. Remembered by stat tuple.
        """
        found = self._stat(path)
        key = (_signed(found.st_dev), _signed(found.st_ino), lines)
        rows = self._database.rows(
            "SELECT size, mtime, ctime, cuts, sum FROM slices WHERE device=? AND inode=? AND lines=?", key
        )
        seen = (found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        if rows and rows[0][:3] == seen and rows[0][4] == _sum(*key, *rows[0][:4]):
            return _slices(rows[0][3])
        for _ in range(3):
            with explain_os_error("read a source file", path):
                now = time.time_ns()
                fd = open_regular(path)
                try:
                    before = os.fstat(fd)
                    cuts = cut_lines(fd, lines)
                    after = os.fstat(fd)
                finally:
                    os.close(fd)
            if _tuple(before) == _tuple(after):
                if not _is_racy(after, now):
                    text = json.dumps([[cut.length, cut.digest] for cut in cuts])
                    size, mtime, ctime, inode, device = _tuple(after)
                    row = (_signed(device), _signed(inode), lines, size, mtime, ctime, text)
                    statement = "INSERT OR REPLACE INTO slices VALUES (?,?,?,?,?,?,?,?)"
                    self._database.write(statement, [(*row, _sum(*row))])
                return cuts
        raise _restless(path)

    @staticmethod
    def unchanged(path: str | os.PathLike[str], known: SourceFile) -> bool:
        """Whether nobody wrote to a source file since it was read as `known`.

        Strict: written and put back is changed, for something may have read what was there between.
        Only a changed ctime (a chmod, a new link, a rename) is settled by reading the file again.
        """
        try:
            found = os.stat(path)
            if not stat.S_ISREG(found.st_mode) or bool(found.st_mode & stat.S_IXUSR) != known.executable:
                return False
            now = _tuple(found)
            if now._replace(ctime_ns=0) != known.stat._replace(ctime_ns=0):
                return False
            return (now == known.stat and not known.racy) or _read(path, found).digest == known.digest
        except (OSError, StoreError):
            return False

    def tree_unchanged(self, folder: str | os.PathLike[str], known: SourceTree) -> bool:
        """Whether a source folder is as it was read: the same names and links, no file written to."""
        try:
            if self.tree_digest_of(folder).info != known.info:
                return False
        except (OSError, StoreError):
            return False
        return all(self.unchanged(path, source) for path, source in known.sources)

    def trim(self) -> None:
        """Begin anew when the index has grown beyond all use: rows of files long gone."""
        rows = self._database.rows("SELECT COUNT(*) FROM files")
        if rows and rows[0][0] > _MAX_ROWS:
            self._database.write("DELETE FROM files", [()])
            self._database.write("DELETE FROM slices", [()])

    def close(self) -> None:
        self._database.close()

    @staticmethod
    def _stat(path: str | os.PathLike[str]) -> os.stat_result:
        try:
            found = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            raise StoreError(f"the source file {os.fspath(path)!r} does not exist") from None
        except OSError:
            with explain_os_error("read a source file", path):
                raise
        if not stat.S_ISREG(found.st_mode):
            kind = kind_of(found.st_mode)
            raise StoreError(f"the source {os.fspath(path)!r} is {kind}, not a regular file")
        return found

    def _known(self, ids: list[tuple[int, int]]) -> dict[tuple[int, int], tuple[Any, ...]]:
        if len(ids) > _MANY:
            rows = self._database.rows(_ROW)
        else:
            rows = []
            for device, inode in ids:
                query = f"{_ROW} WHERE device=? AND inode=?"
                rows += self._database.rows(query, (_signed(device), _signed(inode)))
        return {(row[0], row[1]): row[2:] for row in rows}


def _read(path: str | os.PathLike[str], facts: os.stat_result) -> SourceFile:
    """Hash a file that must not change meanwhile. facts: its stat, taken just before."""
    for _ in range(3):
        now = time.time_ns()
        with explain_os_error("read a source file", path):
            fd = open_regular(path)
            try:
                found = hash_small(fd, facts.st_size)
                if found is None:
                    os.lseek(fd, 0, os.SEEK_SET)
                    found = hash_whole(fd)
                after = os.fstat(fd)
            finally:
                os.close(fd)
        if _tuple(after) == _tuple(facts) and found.size == after.st_size:
            executable = bool(after.st_mode & stat.S_IXUSR)
            return SourceFile(found.digest, found.size, executable, _tuple(after), _is_racy(after, now))
        facts = os.stat(path)
    raise _restless(path)


def _is_racy(facts: os.stat_result, now: int) -> bool:
    """Whether a write after `now` could leave these times as they are. now: before the file was read."""
    window = _COARSE_NS if facts.st_ctime_ns % 1_000_000_000 == 0 else _FINE_NS
    return max(facts.st_mtime_ns, facts.st_ctime_ns) > now - window


def _restless(path: str | os.PathLike[str]) -> StoreError:
    return StoreError(
        "the file keeps changing while it is read",
        where=os.fspath(path),
        hint="wait until its writer is done, then build again",
    )


def _tuple(facts: os.stat_result) -> StatTuple:
    return StatTuple(facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino, facts.st_dev)


def _row(source: SourceFile) -> tuple[Any, ...]:
    size, mtime, ctime, inode, device = source.stat
    row = (_signed(device), _signed(inode), size, mtime, ctime, source.digest)
    return (*row, _sum(*row))


def _sum(*row: object) -> int:
    """Of a row, kept with it: what an index says goes into keys, and a damaged one must not."""
    return crc32(repr(row).encode("utf-8", "surrogateescape"))


def _signed(number: int) -> int:
    """SQLite's integers have a sign; inode numbers of some filesystems use all 64 bits."""
    return number - 2**64 if number >= 2**63 else number


def _slices(text: str) -> list[Slice]:
    out, offset = [], 0
    for length, digest in json.loads(text):
        out.append(Slice(offset, length, str.__new__(Digest, digest)))
        offset += length
    return out
