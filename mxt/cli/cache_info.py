"""What `mxt cache info` says: where a store is, and what takes how much of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from mxt.cli.session import Session
from mxt.cli.terminal import paint
from mxt.errors import StoreError
from mxt.words import plural, size

if TYPE_CHECKING:
    from mxt.store.measure import Measured

_LARGEST = 10
_PATIENCE_S = 5.0  # for a moment in which no build takes its lock


@dataclass
class Info:
    """parts: (what, count, bytes). oldest, newest: when runs began, seconds since 1970; 0: none.

    gc_bytes: what a gc would free, None where that cannot be found out (why). targets: (label, bytes),
    largest first.
    """

    store: str
    results: int
    oldest: float
    newest: float
    parts: list[tuple[str, int, int]]
    bytes: int
    shared: int
    gc_bytes: int | None
    gc_results: int
    why: str
    targets: list[tuple[str, int]] = field(default_factory=list)

    def form(self) -> dict[str, Any]:
        def when(seconds: float) -> str | None:
            return (
                datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z") if seconds else None
            )

        return {
            "v": 1,
            "store": self.store,
            "results": self.results,
            "oldest_run": when(self.oldest),
            "newest_run": when(self.newest),
            "bytes": self.bytes,
            "parts": {name: {"count": count, "bytes": took} for name, count, took in self.parts},
            "linked_bytes": self.shared,
            "gc_bytes": self.gc_bytes,
            "gc_results": None if self.gc_bytes is None else self.gc_results,
            "targets": [{"label": label, "bytes": took} for label, took in self.targets],
        }


def gather(session: Session) -> Info:
    """Walk the store once; then ask gc what it would free."""
    from mxt.store.mark import Marks
    from mxt.store.measure import measure, run_times

    store = session.store
    layout = store.layout
    measured = measure(layout)
    marks = Marks(layout, store.cas)
    times = [time for time in run_times(layout).values() if time]
    gc_bytes, gc_results, why = _gc(session)
    return Info(
        store=str(layout.root),
        results=len(marks.realisations),
        oldest=min(times, default=0.0),
        newest=max(times, default=0.0),
        parts=list(_parts(measured)),
        bytes=measured.bytes,
        shared=measured.shared,
        gc_bytes=gc_bytes,
        gc_results=gc_results,
        why=why,
        targets=_largest(marks, store.history.labels()),
    )


def _parts(measured: Measured) -> Iterator[tuple[str, int, int]]:
    def total(*names: str) -> tuple[int, int]:
        found = [measured.rest[name] for name in names if name in measured.rest]
        return sum(one.count for one in found), sum(one.bytes for one in found)

    keyed = {
        part: (sum(one.count for one in keys.values()), sum(one.bytes for one in keys.values()))
        for part, keys in measured.keyed.items()
    }
    logs = measured.logs
    blobs, records = measured.blobs.values(), measured.records.values()
    yield "blobs", sum(one.count for one in blobs), sum(one.bytes for one in blobs)
    yield "outputs", len(measured.keyed["out"]), keyed["out"][1]
    yield "logs", logs.count, logs.bytes
    yield "evidence", keyed["evidence"][0] - logs.count, keyed["evidence"][1] - logs.bytes
    yield "progress", len(measured.keyed["progress"]), keyed["progress"][1]
    yield "accelerants", keyed["accelerants"][0], keyed["accelerants"][1]
    yield "records", sum(one.count for one in records), sum(one.bytes for one in records)
    yield "environments", *total("toolchains")
    yield "damaged", *total("quarantine")
    yield "temporary", *total("tmp")
    named = {"toolchains", "quarantine", "tmp"}
    yield "indexes", *total(*(name for name in measured.rest if name not in named))


def _gc(session: Session) -> tuple[int | None, int, str]:
    """Bytes and results that a gc would free; None and why where it could not begin."""
    store = session.store
    try:
        store.outputs.register_root(session.root / "mxt-out")
        swept = store.collector.collect(dry_run=True, timeout_s=_PATIENCE_S)
    except StoreError as error:
        return None, 0, error.message
    return swept.bytes, swept.realisations, ""


def _largest(marks: Any, labels: dict[str, set[str]]) -> list[tuple[str, int]]:
    """The targets with the largest outputs, over all their results; equal bytes count once."""
    outputs: dict[str, dict[str, int]] = {}
    for key, found in marks.realisations.items():
        for label in labels.get(key, ()):
            for _, realisation in found:
                for output in realisation.outputs.values():
                    outputs.setdefault(label, {})[output.digest] = output.size
    sizes = [(label, sum(found.values())) for label, found in outputs.items()]
    return sorted(sizes, key=lambda item: (-item[1], item[0]))[:_LARGEST]


def render(info: Info) -> Iterator[str]:
    """For people, below 80 columns except for long labels."""
    yield f"{paint('store', 'bold', sys.stdout)}  {info.store}"
    age = f", runs from {_day(info.oldest)} to {_day(info.newest)}" if info.newest else ""
    yield f"  {plural(info.results, 'result')}{age}"
    yield ""
    yield f"  {'what':<14}{'count':>10}{'size':>12}"
    for name, count, took in info.parts:
        linked = f"   and {size(info.shared)} linked from blobs" if name == "outputs" and info.shared else ""
        yield f"  {name:<14}{count:>10,}{size(took):>12}{linked}"
    yield f"  {'in all':<14}{'':>10}{size(info.bytes):>12}"
    yield ""
    if info.gc_bytes is None:
        yield f"what mxt gc would free is not known: {info.why}"
    else:
        yield f"mxt gc would free {size(info.gc_bytes)} ({plural(info.gc_results, 'result')})"
    if info.targets:
        yield ""
        yield "largest targets, all their results together"
        for label, took in info.targets:
            yield f"  {size(took):>10}  {label}"


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")  # noqa: DTZ006 - the user's own time
