"""Remembers how long each action took last time, so that the critical path can go first.

In no key and of no consequence to any result; a lost file costs a worse order.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mxt.action.action import ActionId
from mxt.store.database import Database

_SCHEMA = "CREATE TABLE durations(action TEXT PRIMARY KEY, seconds REAL) WITHOUT ROWID"
# below this many questions each is asked for itself: reading all of 10,000 takes longer
_FEW = 50


class Durations:
    """Wall seconds by action, kept in one small file."""

    def __init__(self, path: Path) -> None:
        self._database = Database(path, 1, _SCHEMA)
        self._all: dict[str, Any] | None = None
        self._asked = 0
        self._fresh: dict[str, float] = {}

    def get(self, action: ActionId) -> float | None:
        name = str(action)
        if name in self._fresh:
            return self._fresh[name]
        if self._all is None and self._asked < _FEW:
            self._asked += 1
            rows = self._database.rows("SELECT seconds FROM durations WHERE action=?", (name,))
            return _seconds(rows[0][0]) if rows else None
        if self._all is None:
            self._all = {str(a): s for a, s in self._database.rows("SELECT action, seconds FROM durations")}
        return _seconds(self._all.get(name))

    def note(self, action: ActionId, seconds: float) -> None:
        self._fresh[str(action)] = round(seconds, 3)

    def save(self) -> None:
        """Write what was noted, and close the file."""
        if self._fresh:
            self._database.write("INSERT OR REPLACE INTO durations VALUES (?,?)", list(self._fresh.items()))
            self._fresh = {}
        self._database.close()


def _seconds(value: Any) -> float | None:
    """What the file holds, if it can be a time: it may be damaged."""
    return float(value) if isinstance(value, (int, float)) and 0 <= value < float("inf") else None
