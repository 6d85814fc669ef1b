"""Which action keys a target's actions had, in the order of its builds: what `explain` compares with."""

from __future__ import annotations

import time
from typing import NamedTuple

from mxt.store.database import Database
from mxt.store.layout import Layout

_SCHEMA = """
CREATE TABLE IF NOT EXISTS keys(
  id INTEGER PRIMARY KEY, label TEXT, action TEXT, key TEXT, time REAL);
CREATE INDEX IF NOT EXISTS by_label ON keys(label, action, id)
"""
_BATCH = 200
# below this many questions each is asked for itself: reading all of 10,000 takes longer
_FEW = 50


class Remembered(NamedTuple):
    """key: an action key. time: seconds since 1970 when it was first seen in this place."""

    key: str
    time: float


class History:
    """Last keys by (label, action name). Losing them only makes explanations shorter."""

    def __init__(self, layout: Layout) -> None:
        self._database = Database(layout.state / "last.sqlite", 1, _SCHEMA)
        self._last: dict[tuple[str, str], str] | None = None
        self._some: dict[tuple[str, str], str] = {}
        self._asked = 0
        self._fresh: list[tuple[str, str, str, float]] = []

    def remember(self, label: str, action: str, key: str) -> None:
        """Note that an action has this key now; costs nothing when it had it already.

        Written in batches: call `flush` (or close) at the end of a build.
        """
        if self.previous(label, action) == key:
            return
        self._some[label, action] = key
        if self._last is not None:
            self._last[label, action] = key
        self._fresh.append((label, action, key, time.time()))
        if len(self._fresh) >= _BATCH:
            self.flush()

    def previous(self, label: str, action: str) -> str | None:
        """The key an action had when it was last remembered, also in this process."""
        if (label, action) in self._some:
            return self._some[label, action]
        if self._last is None and self._asked < _FEW:
            self._asked += 1
            query = "SELECT key FROM keys WHERE label=? AND action=? ORDER BY id DESC LIMIT 1"
            rows = self._database.rows(query, (label, action))
            return rows[0][0] if rows else None
        return self._all().get((label, action))

    def history(self, label: str, action: str = "") -> list[Remembered]:
        """All keys of an action, oldest first; neighbours differ."""
        self.flush()
        query = "SELECT key, time FROM keys WHERE label=? AND action=? ORDER BY id"
        rows = self._database.rows(query, (label, action))
        return [Remembered(key, when) for key, when in rows]

    def labels(self) -> dict[str, set[str]]:
        """Key -> the labels of all actions that ever had it here."""
        self.flush()
        found: dict[str, set[str]] = {}
        for label, key in self._database.rows("SELECT DISTINCT label, key FROM keys"):
            found.setdefault(key, set()).add(label)
        return found

    def newest(self) -> dict[tuple[str, str], str]:
        """The newest key of every action, by label and action name."""
        return dict(self._all())

    def last_keys(self) -> set[str]:
        """The newest key of every action."""
        return set(self._all().values())

    def restore(self, rows: list[tuple[str, str, str, float]]) -> None:
        """Make the history anew from (label, action name, key, time), oldest first, after a loss."""
        self._database.discard()
        kept: list[tuple[str, str, str, float]] = []
        last: dict[tuple[str, str], str] = {}
        for row in rows:
            if last.get(row[:2]) != row[2]:
                last[row[:2]] = row[2]
                kept.append(row)
        self._database.write("INSERT INTO keys(label, action, key, time) VALUES (?,?,?,?)", kept)
        self._last = None

    def flush(self) -> None:
        fresh, self._fresh = self._fresh, []
        if fresh:
            self._database.write("INSERT INTO keys(label, action, key, time) VALUES (?,?,?,?)", fresh)

    def close(self) -> None:
        self.flush()
        self._database.close()

    def _all(self) -> dict[tuple[str, str], str]:
        if self._last is None:
            rows = self._database.rows(
                "SELECT label, action, key FROM keys "
                "WHERE id IN (SELECT MAX(id) FROM keys GROUP BY label, action)"
            )
            self._last = {(label, action): key for label, action, key in rows} | self._some
        return self._last
