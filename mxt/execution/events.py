"""The event stream of a build: one emitter, any number of listeners, one JSON object a line on disk."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mxt.errors import MxtError, UsageError

Listener = Callable[[str, dict[str, Any]], None]


class Events:
    """emit() hands {"v", "event", "time", "build", ...} to every listener, in order."""

    def __init__(self, build: str) -> None:
        self.build = build
        self._listeners: list[Listener] = []

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def emit(self, event: str, **fields: Any) -> None:
        for listener in self._listeners:
            listener(event, fields)


class EventFile:
    """Writes events as JSON lines; each line is whole on disk before the next begins.

    Raises UsageError where the file cannot be written.
    """

    def __init__(self, path: Path, build: str) -> None:
        self._build = build
        self._path = path
        self.error: MxtError | None = None
        try:
            self._fd = os.open(
                path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o644
            )
        except OSError as error:
            raise _cannot_write("events file", "--events", path, error) from None

    def __call__(self, event: str, fields: dict[str, Any]) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = json.dumps(
            {"v": 1, "event": event, "time": now, "build": self._build, **fields}, ensure_ascii=False
        )
        if self.error is None:
            try:
                os.write(self._fd, line.encode("utf-8", "surrogateescape") + b"\n")
            except OSError as error:
                # the build itself is sound: it goes on, and says so at its end
                self.error = _cannot_write("events file", "--events", self._path, error)


class ProfileFile:
    """Collects a Chrome trace (chrome://tracing, Perfetto): one row a slot, one slice an action."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.error: MxtError | None = None
        try:
            path.write_text(
                "{}", encoding="utf-8"
            )  # whether it can be written is better known before the work
        except OSError as error:
            raise _cannot_write("profile", "--profile", path, error) from None
        self._start = time.monotonic()
        self._slots: list[str | None] = []
        self._open: dict[str, tuple[int, float]] = {}
        self._trace: list[dict[str, Any]] = []

    def __call__(self, event: str, fields: dict[str, Any]) -> None:
        now = (time.monotonic() - self._start) * 1e6
        if event == "action_started":
            identity = fields["label"] + "\0" + fields["action"]
            slot = self._slots.index(None) if None in self._slots else len(self._slots)
            if slot == len(self._slots):
                self._slots.append(None)
            self._slots[slot] = identity
            self._open[identity] = (slot, now)
        elif event == "action_finished":
            identity = fields["label"] + "\0" + fields["action"]
            slot, began = self._open.pop(identity, (0, now))
            if slot < len(self._slots) and self._slots[slot] == identity:
                self._slots[slot] = None
            self._trace.append(
                {
                    "name": fields["label"] + (f"[{fields['action']}]" if fields["action"] else ""),
                    "cat": fields["mnemonic"],
                    "ph": "X",
                    "ts": began,
                    # while its outputs are taken in the next one runs already
                    "dur": min(now - began, fields["wall_s"] * 1e6),
                    "pid": 1,
                    "tid": slot,
                    "args": {"status": fields["status"], "key": fields["key"]},
                }
            )
        elif event == "build_finished":
            try:
                self._path.write_text(json.dumps({"traceEvents": self._trace}), encoding="utf-8")
            except OSError as error:
                self.error = _cannot_write("profile", "--profile", self._path, error)


def _cannot_write(what: str, option: str, path: Path, error: OSError) -> UsageError:
    return UsageError(
        f"cannot write the {what}: {error.strerror}",
        where=str(path),
        hint=f"give {option} a file in a folder that exists and is writable, on a disk with room",
    )
