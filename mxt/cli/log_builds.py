"""mxt log --builds: the builds that left a record, newest first."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mxt.cli.cells import columns_of, pad, shorten
from mxt.words import duration

if TYPE_CHECKING:
    from mxt.execution.build_record import BuildRecord

SHOWN = 20
_ORDER = ("executed", "remote", "cached", "failed", "skipped", "interrupted")


def width() -> int:
    """Columns to fill: the terminal's, 100 in a pipe."""
    return max(60, min(columns_of(sys.stdout, 100), 160))


def local_time(text: str) -> str:
    """RFC 3339 as the user's clock shows it, to the minute."""
    try:
        return datetime.fromisoformat(text).astimezone().strftime("%Y-%m-%d %H:%M")
    except ValueError:
        return text


def outcome(record: BuildRecord) -> str:
    """ok: 2 executed, 1 cached."""
    counts = Counter(step.status for step in record.steps)
    words = ", ".join(f"{counts[status]} {status}" for status in _ORDER if counts[status])
    return f"{verdict(record)}: {words}" if words else verdict(record)


def verdict(record: BuildRecord) -> str:
    return "interrupted" if record.interrupted else "ok" if record.success else "failed"


def all_records(state: Path) -> tuple[list[BuildRecord], int]:
    """Every record that can be read, newest first, and how many cannot. state: the store's folder."""
    from mxt.errors import StoreError
    from mxt.execution.build_record import read_record, records

    found, damaged = [], 0
    for path in records(state):
        try:
            found.append(read_record(path))
        except StoreError:
            damaged += 1
    return found, damaged


def reaching(records: Sequence[BuildRecord], labels: Collection[str]) -> list[BuildRecord]:
    """The builds that reached an action of one of these targets, or were asked for one of them."""
    return [
        record
        for record in records
        if any(step.label in labels for step in record.steps) or any(r in labels for r in record.requested)
    ]


def build_table(records: Sequence[BuildRecord], columns: int) -> Iterator[str]:
    """A line a build; ran: actions that were run, of those that the build reached."""
    yield f"{'build':<8}  {'began':<16}  {'took':>9}  {'result':<11}  {'ran':>7}  targets"
    for record in records:
        counts = Counter(step.status for step in record.steps)
        ran = f"{counts['executed'] + counts['failed'] + counts['interrupted']}/{len(record.steps)}"
        line = (
            f"{record.identity[:8]}  {pad(local_time(record.began), 16)}  {duration(record.wall_s):>9}  "
            f"{verdict(record):<11}  {ran:>7}  "
        )
        yield line + shorten(" ".join(record.requested), columns - len(line))


def build_form(record: BuildRecord) -> dict[str, Any]:
    counts = Counter(step.status for step in record.steps)
    return {
        "build": record.identity,
        "began": record.began,
        "wall_s": record.wall_s,
        "success": record.success,
        "interrupted": record.interrupted,
        "requested": list(record.requested),
        "counts": dict(sorted(counts.items())),
    }
