"""Garbage collection: mark what somebody may still want, sweep the rest, under the store's own lock.

Roots: what the mxt-out folders of the store's workspaces link to, pins, leases of running builds, the
last key of each action (its form only, for `explain`), progress younger than 14 days. A root keeps its
outputs and, by way of its action form, the actions that made its inputs: after a gc nothing that
mxt-out shows runs again. Records go before the blobs they name, so SIGKILL leaves no promise broken;
anything newer than the oldest running build stays.

With a size to stay below, results that no root holds are kept as long as they fit, the most recently used
first, each with all that it was made from; the first that does not fit goes, and so do all older ones.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mxt.errors import StoreError
from mxt.store.action_cache import ActionCache
from mxt.store.cas import Cas
from mxt.store.fit import Fit
from mxt.store.history import History
from mxt.store.layout import Layout
from mxt.store.lease import live_leases
from mxt.store.lock import Locks, OnWait
from mxt.store.mark import Marks, linked_keys, listing
from mxt.store.materialise import remove_tree
from mxt.store.measure import Measured, measure
from mxt.store.os_errors import explain_os_error

_SNAPSHOT_SECONDS = 30 * 86400

PROGRESS_DAYS = 14


@dataclass
class Swept:
    """What a gc removed, or would. Bytes are those that the disk gets back.

    limit: the size to stay below, -1 without one; then too: total: the store's bytes afterwards, held: those
    of them that no limit takes away, by what they are.
    """

    blobs: int = 0
    bytes: int = 0
    realisations: int = 0
    outputs: int = 0
    progress: int = 0
    leftovers: int = 0
    kept_blobs: int = 0
    kept_bytes: int = 0
    paths: list[str] = field(default_factory=list)
    limit: int = -1
    total: int = 0
    held: dict[str, int] = field(default_factory=dict)


def pin(layout: Layout, name: str) -> None:
    """Keep an action key's outputs, or a blob, until `unpin`."""
    place = layout.state / "pins" / name
    with explain_os_error("pin", place):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()


def unpin(layout: Layout, name: str) -> bool:
    """Whether there was such a pin."""
    place = layout.state / "pins" / name
    with explain_os_error("unpin", place):
        try:
            place.unlink()
        except FileNotFoundError:
            return False
    return True


class Collector:
    """One garbage collection of one store."""

    def __init__(self, layout: Layout, cas: Cas, actions: ActionCache, history: History) -> None:
        self.layout = layout
        self.cas = cas
        self.actions = actions
        self.history = history

    def collect(
        self,
        *,
        dry_run: bool = False,
        progress_days: float = PROGRESS_DAYS,
        max_size: int | None = None,
        used: Mapping[str, float] | None = None,
        unfinished: Iterable[str] = (),
        on_wait: OnWait | None = None,
        timeout_s: float | None = None,
    ) -> Swept:
        """Sweep, or with dry_run only say what would go. Raises StoreError when another gc runs.

        max_size: bytes; results that nothing holds stay as long as the store is no larger than this.
        used: action key -> seconds since 1970 when it was last of use, beside what the store itself knows.
        unfinished: keys that builds reached which did not get as far as their links; they stay.
        """
        lock = Locks(self.layout).exclusive(on_wait, timeout_s=timeout_s)
        if lock is None:
            raise StoreError("another gc is running", where=self.layout.text, hint="wait for it")
        with lock, explain_os_error("collect garbage", self.layout.root):
            fit = None if max_size is None else Fit(max_size, used or {})
            return _Collection(self, dry_run, progress_days, fit, frozenset(unfinished)).run()


class _Collection:
    def __init__(
        self,
        owner: Collector,
        dry_run: bool,
        progress_days: float,
        fit: Fit | None,
        unfinished: frozenset[str],
    ) -> None:
        self.unfinished = unfinished
        self.layout = owner.layout
        self.cas = owner.cas
        self.history = owner.history
        self.dry_run = dry_run
        self.fit = fit
        self.oldest_progress = time.time() - progress_days * 86400
        self.swept = Swept()
        leases = live_leases(self.layout, remove_dead=not dry_run)
        self.leased = {name for lease in leases for name in lease.names}
        # nothing that came or was linked since the oldest running build began is touched
        self.since = min((lease.since_ns for lease in leases), default=1 << 63)
        self.marks = Marks(owner.layout, owner.cas)
        self.rooted: set[str] = set()  # without what is kept only because it fits or costs nothing

    def run(self) -> Swept:
        self.marks.from_roots(self._roots())
        self.rooted = set(self.marks.keys)
        self.marks.what_costs_nothing()
        self.marks.digests.update(self.history.last_keys())
        if self.fit is not None:
            self._spare_what_fits(self.fit)
        self._sweep_outputs()
        self._sweep_records()
        self._sweep_blobs()
        self._sweep_progress()
        self._sweep_leftovers()
        self.swept.total -= self.swept.bytes
        return self.swept

    # mark

    def _roots(self) -> set[str]:
        roots = {*self.leased, *self.unfinished}
        roots.update(path.name for path in listing(self.layout.state / "pins"))
        for path in listing(self.layout.root / "progress"):
            if _newest(path) >= self.oldest_progress:
                roots.add(path.name)
        roots.update(linked_keys(self.layout, str(self.layout.root.parent / "mxt-out")))
        for path in listing(self.layout.state / "roots"):
            with contextlib.suppress(OSError):
                folder = os.path.join(os.path.realpath(self.layout.root), os.fsdecode(path.read_bytes()))
                roots.update(linked_keys(self.layout, folder))
        return roots

    def _spare_what_fits(self, fit: Fit) -> None:
        """Mark results that no root holds, the last used first, until one does not fit."""
        measured = measure(self.layout)
        self.swept.limit, self.swept.total = fit.limit, measured.bytes
        self.swept.held = self._held(measured)
        budget = fit.limit - sum(self.swept.held.values())
        for key in fit.order(self.layout, self.marks):
            if key in self.marks.keys:
                continue  # an input of one that was used later
            self.marks.begin()
            if key in self.marks.realisations:
                self.marks.from_roots([key])
            else:  # only what a failed run said
                self.marks.alone(key)
            keys, digests = self.marks.fresh()
            cost = sum(map(measured.of_key, keys)) + sum(map(measured.of_blob, digests))
            if cost > budget:
                self.marks.undo()
                return
            budget -= cost

    def _held(self, measured: Measured) -> dict[str, int]:
        """What no limit takes away, in bytes, by what it is."""
        results = sum(map(measured.of_key, self.marks.keys)) + sum(map(measured.of_blob, self.marks.digests))
        progress = measured.keyed["progress"]
        unfinished = sum(progress[key].bytes for key in self.rooted & progress.keys())
        making = 0
        if self.since < 1 << 63:  # what running builds have just made
            unmarked = (digest for digest in measured.blobs if digest not in self.marks.digests)
            making += sum(measured.of_blob(d) for d in unmarked if self._is_new(self.cas.path(d)))
            temporary = (path for path in listing(self.layout.tmp) if _alive(path.name))
            making += sum(map(_size, temporary))
        swept = ("tmp", "quarantine")
        other = sum(amount.bytes for name, amount in measured.rest.items() if name not in swept)
        return {
            "results": results,
            "unfinished work": unfinished,
            "running builds": making,
            "environments and indexes": other,
        }

    # sweep

    def _sweep_outputs(self) -> None:
        for part in ("out", "evidence", "accelerants"):
            for path in listing(self.layout.root / part):
                if path.name not in self.marks.keys and not self._is_new(path):
                    self.swept.outputs += part == "out"
                    self._remove(path, count=part != "out")

    def _sweep_records(self) -> None:
        for key, found in self.marks.realisations.items():
            if key in self.marks.keys:
                continue
            stale = [path for path, _ in found if not self._is_new(path)]
            self.swept.realisations += len(stale)
            for path in stale:
                self._remove(path)
            if len(stale) == len(found):
                self._remove_empty(self.layout.action(key))
                runs = self.layout.runs(key)
                if runs.exists():
                    self._remove(runs)

    def _sweep_blobs(self) -> None:
        for folder in listing(self.layout.root / "cas"):
            for path in listing(folder):
                digest = path.name.removesuffix(".x")
                facts = path.lstat()
                if digest in self.marks.digests or facts.st_ctime_ns >= self.since:
                    self.swept.kept_blobs += 1
                    self.swept.kept_bytes += facts.st_size
                    continue
                self.swept.blobs += 1
                # the disk gets back what is linked from nowhere else but out/, which went before
                self._remove(path)

    def _sweep_progress(self) -> None:
        for path in listing(self.layout.root / "progress"):
            if path.name not in self.rooted and not self._is_new(path):
                self.swept.progress += 1
                self._remove(path)

    def _sweep_leftovers(self) -> None:
        for path in listing(self.layout.tmp):
            if not _alive(path.name) and not self._is_new(path):
                self.swept.leftovers += 1
                self._remove(path)
        for path in listing(self.layout.quarantine):
            self.swept.leftovers += 1
            self._remove(path)
        state = self.layout.state
        for folder in (state, state / "snapshots", state / "builds"):
            for path in listing(folder):  # what a killed build was writing: <name>.<pid>, <name>.<pid>.new
                name, _, pid = path.name.removesuffix(".new").rpartition(".")
                if name and pid.isdigit() and not _alive(pid):
                    self.swept.leftovers += 1
                    self._remove(path)
        self._sweep_snapshots(state / "snapshots")

    def _sweep_snapshots(self, folder: Path) -> None:
        """Those of requests that nobody made for a month, and kept graphs without a snapshot."""
        names = {path.name for path in listing(folder)}
        for path in listing(folder):
            snapshot = path.name.partition(".")[0]
            with contextlib.suppress(OSError):
                stale = time.time() - max(path.stat().st_atime, path.stat().st_mtime) > _SNAPSHOT_SECONDS
                alone = snapshot not in names and not self._is_new(path)
                if path.name != "lock" and (stale or alone):
                    self.swept.leftovers += 1
                    self._remove(path)

    def _is_new(self, path: Path) -> bool:
        try:
            return path.lstat().st_ctime_ns >= self.since
        except OSError:
            return False

    def _remove(self, path: Path, *, count: bool = True) -> None:
        self.swept.paths.append(str(path.relative_to(self.layout.root)))
        if count:
            self.swept.bytes += _size(path)
        if not self.dry_run:
            remove_tree(path)

    def _remove_empty(self, path: Path) -> None:
        if not self.dry_run:
            with contextlib.suppress(OSError):
                path.rmdir()


def _size(path: Path) -> int:
    """The bytes of a file, or of all files in a folder."""
    return sum(facts.st_size for facts in _below(path) if not stat.S_ISDIR(facts.st_mode))


def _newest(path: Path) -> float:
    """The time of the newest change in a folder."""
    return max((facts.st_mtime for facts in _below(path)), default=0.0)


def _below(path: Path) -> Iterator[os.stat_result]:
    """lstat of path and of everything below it, however deep; what cannot be looked at is left out."""
    stack = [os.fspath(path)]
    while stack:
        place = stack.pop()
        try:
            facts = os.lstat(place)
            yield facts
            if stat.S_ISDIR(facts.st_mode):
                stack += [entry.path for entry in os.scandir(place)]
        except OSError:
            continue


def _alive(name: str) -> bool:
    """Whether the process whose temporary file this is still runs (or one that took over its number)."""
    pid = name.split("-", 1)[0]
    if not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
