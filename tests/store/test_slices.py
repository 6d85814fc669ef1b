from __future__ import annotations

import sqlite3
import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mxt.errors import StoreError
from mxt.store import Slice, Store, copy_slice, hash_bytes
from mxt.store.file_index import _sum

from .conftest import file_with


def expected(data: bytes, lines: int) -> list[Slice]:
    """The plain way to say what slices are."""
    rows = data.splitlines(keepends=True) if b"\r" not in data else None
    if rows is None or any(byte in data for byte in b"\x0b\x0c\x1c\x1d\x1e\x85"):
        rows = [part + b"\n" for part in data.split(b"\n")]
        rows[-1] = rows[-1][:-1]
        rows = [row for row in rows if row]
    out, offset = [], 0
    for begin in range(0, len(rows), lines):
        piece = b"".join(rows[begin : begin + lines])
        out.append(Slice(offset, len(piece), hash_bytes(piece)))
        offset += len(piece)
    return out


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.lists(st.sampled_from([b"\n", b"a", b"row\n", b"\r\n", b"x" * 70_000, b"\n" * 300])).map(
        b"".join
    ),
    lines=st.sampled_from([1, 2, 3, 64, 65, 100, 1000]),
)
def test_pieces_are_the_lines(store: Store, tmp_path: Path, data: bytes, lines: int) -> None:
    path = file_with(tmp_path / "f", data)
    assert store.index.slices(path, lines) == expected(data, lines)


def test_pieces_span_chunks(store: Store, tmp_path: Path) -> None:
    data = b"".join(b"%d %s\n" % (number, b"x" * (number % 977)) for number in range(20_000))
    path = file_with(tmp_path / "f", data)
    for lines in (1, 7, 4096, 19_999, 20_000, 20_001):
        assert store.index.slices(path, lines) == expected(data, lines)


def test_an_added_row_changes_the_last_piece_only(store: Store, tmp_path: Path) -> None:
    rows = [b'{"n":%d}\n' % number for number in range(100)]
    path = file_with(tmp_path / "f", b"".join(rows[:95]))
    before = store.index.slices(path, 10)
    path.write_bytes(b"".join(rows))
    after = store.index.slices(path, 10)
    assert before[:-1] == after[:-1]
    assert before[-1] != after[-1]


def test_pieces_are_remembered_until_the_file_changes(store: Store, tmp_path: Path) -> None:
    path = file_with(tmp_path / "f", b"a\nb\n")
    time.sleep(0.06)
    cut = store.index.slices(path, 1)
    with sqlite3.connect(store.layout.index) as connection:
        query = "SELECT device, inode, lines, size, mtime, ctime FROM slices"
        row = (*connection.execute(query).fetchone(), f'[[4,"{"0" * 64}"]]')
        connection.execute("UPDATE slices SET cuts=?, sum=?", (row[-1], _sum(*row)))
    connection.close()
    assert store.index.slices(path, 1) == [Slice(0, 4, "0" * 64)]  # type: ignore[arg-type]
    assert store.index.slices(path, 2) == [Slice(0, 4, hash_bytes(b"a\nb\n"))]
    path.write_bytes(b"a\nb\n")
    assert store.index.slices(path, 1) == cut


def test_memory_does_not_grow_with_the_longest_line(store: Store, tmp_path: Path) -> None:
    path = file_with(tmp_path / "f", b"x" * 50_000_000 + b"\nshort\n")
    tracemalloc.start()
    cut = store.index.slices(path, 1)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [piece.length for piece in cut] == [50_000_001, 6]
    assert peak < 5_000_000


def test_a_piece_is_copied_and_checked(store: Store, tmp_path: Path) -> None:
    path = file_with(tmp_path / "f", b"a\nb\nc\n")
    first, second, third = store.index.slices(path, 1)
    copy_slice(path, second, tmp_path / "piece")
    assert (tmp_path / "piece").read_bytes() == b"b\n"
    path.write_bytes(b"a\nX\nc\n")
    with pytest.raises(StoreError, match="the file changed during the build"):
        copy_slice(path, second, tmp_path / "other")
    assert not (tmp_path / "other").exists()
    path.write_bytes(b"a\n")
    with pytest.raises(StoreError, match="the file changed during the build"):
        copy_slice(path, third, tmp_path / "other")
    copy_slice(path, first, tmp_path / "first")
