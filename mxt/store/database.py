"""A small SQLite file that may vanish at any time: damaged or of another version, it is made anew."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Sequence


class Database:
    """Rows that only save time or explain: losing them is harmless, so nothing is synced to the disk.

    version: of the schema; a file with another is replaced. Opened at the first use; safe for threads.
    Whatever goes wrong (a full disk, a read-only store, another process's lock) loses rows, never raises.
    """

    def __init__(self, path: Path, version: int, schema: str) -> None:
        self.path = path
        self._version = version
        self._schema = schema
        self._connection: sqlite3.Connection | None = None
        self._lock = threading.RLock()

    def rows(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of a query; [] where it cannot be answered."""
        import sqlite3

        with self._lock:
            try:
                return self._open().execute(query, values).fetchall()
            except sqlite3.DatabaseError as error:
                self._reset(error)
                return []

    def write(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        """Execute statement for each of rows, in one transaction."""
        import sqlite3

        with self._lock:
            for _ in (0, 1):
                try:
                    connection = self._open()
                    connection.execute("BEGIN IMMEDIATE")
                    try:
                        connection.executemany(statement, rows)
                        connection.execute("COMMIT")
                    except BaseException:
                        with contextlib.suppress(sqlite3.DatabaseError):
                            connection.execute("ROLLBACK")
                        raise
                    return
                except sqlite3.DatabaseError as error:
                    self._reset(error)

    def discard(self) -> None:
        """Delete the file, so that the next use makes it anew."""
        self.close()
        self._discard()

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            import sqlite3

            try:
                self._connection = self._connect(str(self.path))
            except sqlite3.OperationalError:
                # no folder, or one that cannot be written: this process gets by without
                try:
                    os.makedirs(self.path.parent, exist_ok=True)
                    self._connection = self._connect(str(self.path))
                except (OSError, sqlite3.DatabaseError):
                    self._connection = self._connect(":memory:")
            except sqlite3.DatabaseError:
                self._discard()
                try:
                    self._connection = self._connect(str(self.path))
                except sqlite3.DatabaseError:
                    self._connection = self._connect(":memory:")
        return self._connection

    def _connect(self, path: str) -> sqlite3.Connection:
        import sqlite3

        connection = sqlite3.connect(path, timeout=5, isolation_level=None, check_same_thread=False)
        try:
            found = connection.execute("PRAGMA user_version").fetchone()[0]
            if found not in (0, self._version):
                raise sqlite3.DatabaseError("of another version")
            if found == 0:
                # WAL lets readers go on while another build writes; it stays set in the file
                connection.execute("PRAGMA journal_mode=WAL")
                connection.execute("PRAGMA synchronous=OFF")
                connection.executescript(
                    f"BEGIN IMMEDIATE;{self._schema};PRAGMA user_version={self._version};COMMIT"
                )
            else:
                connection.execute("PRAGMA synchronous=OFF")
        except BaseException:
            connection.close()
            raise
        return connection

    def _reset(self, error: Exception) -> None:
        """After an error: a damaged file is discarded, a busy or full one is left in peace."""
        import sqlite3

        self.close()
        if not isinstance(error, sqlite3.OperationalError) or "no such" in str(error):
            self._discard()

    def _discard(self) -> None:
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(OSError):
                os.unlink(f"{self.path}{suffix}")
