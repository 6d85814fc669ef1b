"""Remembers how long each action took last time, so that the critical path can go first.

In no key and of no consequence to any result; a lost file costs a worse order.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from mxt.action.action import ActionId


class Durations:
    """Wall seconds by action, kept in one small JSON file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._changed = False
        try:
            loaded = json.loads(path.read_bytes())
            self._seconds = {str(k): float(v) for k, v in loaded.items()}
        except (OSError, ValueError, AttributeError, TypeError, RecursionError):
            self._seconds = {}

    def get(self, action: ActionId) -> float | None:
        return self._seconds.get(str(action))

    def note(self, action: ActionId, seconds: float) -> None:
        self._seconds[str(action)] = round(seconds, 3)
        self._changed = True

    def save(self) -> None:
        if not self._changed:
            return
        aside = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            aside.write_text(json.dumps(self._seconds), encoding="utf-8")
            aside.replace(self._path)
        except OSError:
            aside.unlink(missing_ok=True)
