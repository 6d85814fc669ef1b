"""What each build did, kept beside the store: which actions it reached, under which keys, how they ended."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from mxt.errors import StoreError, UsageError

KEPT = 200
_KEPT_BYTES = 64 << 20
_KEPT_AT_LEAST = 10
_VERSION = 1
# as long as progress is kept
UNFINISHED_DAYS = 14
_WITH_RESULT = ("executed", "cached", "remote")


@dataclass(frozen=True)
class BuiltStep:
    """One action of a build. action: "" for a target's only one. key: "" if it was never known.

    status: as in the events. wall_s: seconds, 0 where nothing ran.
    """

    label: str
    action: str
    key: str
    status: str
    wall_s: float


@dataclass(frozen=True)
class BuildRecord:
    """identity: as in events and receipts. began: RFC 3339, UTC. requested: labels as they were written."""

    identity: str
    began: str
    wall_s: float
    requested: tuple[str, ...]
    success: bool
    interrupted: bool
    steps: tuple[BuiltStep, ...]


class Recorder:
    """Listens to a build and writes its record when it ends. A null build emits nothing and leaves none.

    untouched: gives, for (label, action) that were reached, the steps of all others, which nobody had to
    look at, as a JSON array.
    """

    def __init__(self, state: Path, identity: str, requested: Sequence[str]) -> None:
        self.untouched: Callable[[Iterable[tuple[str, str]]], str] = lambda _: "[]"
        self._folder = state / "builds"
        self._identity = identity
        self._began = datetime.now(UTC)
        self._requested = list(requested)
        self._interrupted = False
        self._steps: list[tuple[str, str, str, str, float]] = []

    def __call__(self, event: str, fields: dict[str, Any]) -> None:
        if event == "action_finished":
            self._steps.append(
                (
                    fields["label"],
                    fields["action"],
                    fields["key"] or "",
                    fields["status"],
                    fields["wall_s"],
                )
            )
        elif event == "build_interrupted":
            self._interrupted = True
        elif event == "build_finished":
            # a disk that is full has failed the build already, with a better message
            with contextlib.suppress(OSError):
                self._write(fields["wall_s"], fields["success"])

    def _write(self, wall_s: float, success: bool) -> None:
        began = self._began.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        text = json.dumps(
            {
                "v": _VERSION,
                "identity": self._identity,
                "began": began,
                "wall_s": wall_s,
                "requested": self._requested,
                "success": success,
                "interrupted": self._interrupted,
                "steps": self._steps,
            },
            ensure_ascii=True,
            separators=(",", ":"),
        )
        rest = self.untouched(step[:2] for step in self._steps)
        if rest != "[]":  # one list out of two: the steps stand last
            text = text.removesuffix("]}") + ("," if self._steps else "") + rest[1:] + "}"
        self._folder.mkdir(parents=True, exist_ok=True)
        path = (
            self._folder / f"{self._began:%Y%m%dT%H%M%S}.{self._began.microsecond:06}Z-{self._identity}.json"
        )
        aside = path.with_suffix(f".{os.getpid()}.new")
        aside.write_text(text, encoding="utf-8")
        aside.rename(path)
        kept = 0
        for number, old in enumerate(records(self._folder.parent)):
            kept += old.stat().st_size
            if number >= KEPT or (kept > _KEPT_BYTES and number >= _KEPT_AT_LEAST):
                old.unlink(missing_ok=True)


def records(state: Path) -> list[Path]:
    """The kept records, newest first. state: the store's folder of that name."""
    try:
        names = os.listdir(state / "builds")
    except FileNotFoundError:
        return []
    return [state / "builds" / name for name in sorted(names, reverse=True) if name.endswith(".json")]


def read_record(path: Path) -> BuildRecord:
    """Raises StoreError for a record that is gone or damaged."""
    try:
        data = json.loads(path.read_bytes())
        if data["v"] != _VERSION:
            raise ValueError(f"version {data['v']}")
        return BuildRecord(
            identity=str(data["identity"]),
            began=str(data["began"]),
            wall_s=_seconds(data["wall_s"]),
            requested=tuple(map(str, data["requested"])),
            success=bool(data["success"]),
            interrupted=bool(data["interrupted"]),
            steps=tuple(
                BuiltStep(str(label), str(action), str(key), str(status), _seconds(wall))
                for label, action, key, status, wall in data["steps"]
            ),
        )
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise StoreError(
            f"the record of a build cannot be read: {error}",
            where=str(path),
            hint="delete it; nothing else needs it",
        ) from None


def unfinished(state: Path, days: float = UNFINISHED_DAYS) -> set[str]:
    """Keys with a result that builds reached which failed or were interrupted, in the last so many days.

    Their results have no links in mxt-out, and the next build of the same counts on them.
    """
    keys: set[str] = set()
    for path in records(state):
        try:
            record = read_record(path)
            began = datetime.fromisoformat(record.began)
        except (StoreError, ValueError):
            continue
        if datetime.now(UTC) - began > timedelta(days=days):
            break
        if not record.success:
            keys.update(step.key for step in record.steps if step.key and step.status in _WITH_RESULT)
    return keys


def _seconds(number: Any) -> float:
    seconds = float(number)
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"{number} is no time")
    return seconds


def find_record(state: Path, text: str) -> BuildRecord:
    """A build by "last", "last~1" (the one before), or the beginning of its identity.

    Raises UsageError where there is none, or more than one.
    """
    found = records(state)
    if not found:
        raise UsageError(
            "no build is recorded in this store", hint="a build that runs or finds something leaves a record"
        )
    word, _, back = text.partition("~")
    if word == "last" and (back.isdecimal() or "~" not in text):
        place = int(back or 0)
        if place < len(found):
            return read_record(found[place])
        raise UsageError(
            f"'{text}': only {len(found)} builds are recorded", hint="'mxt log --builds' lists them"
        )
    matches = [path for path in found if text and path.stem.rpartition("-")[2].startswith(text)]
    if len(matches) == 1:
        return read_record(matches[0])
    raise UsageError(
        f"{'no build is called' if not matches else f'{len(matches)} builds begin with'} '{text}'",
        hint="'mxt log --builds' lists them; 'last' is the newest, 'last~1' the one before",
    )
