"""Garbage collection: mark what somebody may still want, sweep the rest, under the store's own lock.

Roots: what the mxt-out folders of the store's workspaces link to, pins, leases of running builds, the
last key of each action (its form only, for `explain`), progress younger than 14 days. A root keeps its
outputs and, by way of its action form, the actions that made its inputs: after a gc nothing that
mxt-out shows runs again. Records go before the blobs they name, so SIGKILL leaves no promise broken;
anything newer than the oldest running build stays.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from mxt.action.canonical import load
from mxt.errors import StoreError
from mxt.store.action_cache import ActionCache
from mxt.store.cas import Cas
from mxt.store.history import History
from mxt.store.layout import Layout
from mxt.store.lease import live_leases
from mxt.store.lock import Locks, OnWait
from mxt.store.materialise import remove_tree
from mxt.store.os_errors import explain_os_error
from mxt.store.realisation import Realisation
from mxt.store.records import REALISATION_TYPE, open_record
from mxt.store.tree import walk_tree

PROGRESS_DAYS = 14
_TREE = b'{"entries":['


@dataclass
class Swept:
    """What a gc removed, or would. Bytes are those that the disk gets back."""

    blobs: int = 0
    bytes: int = 0
    realisations: int = 0
    outputs: int = 0
    progress: int = 0
    leftovers: int = 0
    kept_blobs: int = 0
    kept_bytes: int = 0
    paths: list[str] = field(default_factory=list)


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
        on_wait: OnWait | None = None,
        timeout_s: float | None = None,
    ) -> Swept:
        """Sweep, or with dry_run only say what would go. Raises StoreError when another gc runs."""
        lock = Locks(self.layout).exclusive(on_wait, timeout_s=timeout_s)
        if lock is None:
            raise StoreError("another gc is running", where=self.layout.text, hint="wait for it")
        with lock, explain_os_error("collect garbage", self.layout.root):
            return _Collection(self, dry_run, progress_days).run()


class _Collection:
    def __init__(self, owner: Collector, dry_run: bool, progress_days: float) -> None:
        self.layout = owner.layout
        self.cas = owner.cas
        self.history = owner.history
        self.dry_run = dry_run
        self.oldest_progress = time.time() - progress_days * 86400
        self.swept = Swept()
        leases = live_leases(self.layout, remove_dead=not dry_run)
        self.leased = {name for lease in leases for name in lease.names}
        # nothing that came or was linked since the oldest running build began is touched
        self.since = min((lease.since_ns for lease in leases), default=1 << 63)
        self.realisations: dict[str, list[tuple[Path, Realisation]]] = {}
        self.makers: dict[str, set[str]] = {}
        self.keys: set[str] = set()
        self.digests: set[str] = set()
        self.walked: set[str] = set()

    def run(self) -> Swept:
        self._read_records()
        self._mark()
        self._sweep_outputs()
        self._sweep_records()
        self._sweep_blobs()
        self._sweep_progress()
        self._sweep_leftovers()
        return self.swept

    # mark

    def _read_records(self) -> None:
        for folder in _two_levels(self.layout.root / "ac"):
            for path in _listing(folder):
                try:
                    record = open_record(path.read_bytes(), REALISATION_TYPE)
                    realisation = Realisation.parse(record.payload, record.keyid)
                except (OSError, ValueError):
                    continue
                self.realisations.setdefault(folder.name, []).append((path, realisation))
                for output in realisation.outputs.values():
                    self.makers.setdefault(output.digest, set()).add(folder.name)

    def _roots(self) -> set[str]:
        roots = set(self.leased)
        roots.update(path.name for path in _listing(self.layout.state / "pins"))
        for path in _listing(self.layout.root / "progress"):
            if _newest(path) >= self.oldest_progress:
                roots.add(path.name)
        roots.update(self._linked(str(self.layout.root.parent / "mxt-out")))
        for path in _listing(self.layout.state / "roots"):
            with contextlib.suppress(OSError):
                folder = os.path.join(os.path.realpath(self.layout.root), os.fsdecode(path.read_bytes()))
                roots.update(self._linked(folder))
        return roots

    def _linked(self, folder: str) -> Iterator[str]:
        """The keys that the symlinks below a folder lead to."""
        base = os.path.realpath(self.layout.root / "out") + "/"
        for place, folders, files in os.walk(folder):
            for name in folders + files:
                path = os.path.join(place, name)
                if os.path.islink(path):
                    target = os.path.normpath(os.path.join(os.path.realpath(place), os.readlink(path)))
                    if target.startswith(base):
                        yield target[len(base) :].split("/", 1)[0]

    def _mark(self) -> None:
        waiting = list(self._roots())
        while waiting:
            name = waiting.pop()
            if name in self.keys:
                continue
            self.keys.add(name)
            self.digests.add(name)  # a key's own blob is its action form
            if name not in self.realisations and self._is_tree(name):  # a pin or a lease may name a blob
                self._mark_output("dir", name)
            for _, realisation in self.realisations.get(name, ()):
                for output in realisation.outputs.values():
                    self._mark_output(output.kind, output.digest)
            for kind, digest in self._inputs(name):
                waiting.extend(self.makers.get(digest, ()))
                self._mark_output(kind, digest)
        # also what costs nothing to keep: records all of whose bytes stay anyway
        for name, found in self.realisations.items():
            outputs = [output for _, realisation in found for output in realisation.outputs.values()]
            if all(output.digest in self.digests for output in outputs):
                self.keys.add(name)
                self.digests.add(name)
        self.digests.update(self.history.last_keys())

    def _mark_output(self, kind: str, digest: str) -> None:
        if digest in self.walked:
            return
        self.walked.add(digest)
        self.digests.add(digest)
        if kind == "dir":
            with contextlib.suppress(StoreError):  # an incomplete folder keeps what there is of it
                self.digests.update(entry.digest for _, entry in walk_tree(self.cas, digest) if entry.digest)

    def _is_tree(self, digest: str) -> bool:
        try:
            with open(self.layout.blob(digest), "rb") as file:
                return file.read(len(_TREE)) == _TREE
        except OSError:
            return False

    def _inputs(self, key: str) -> list[tuple[str, str]]:
        """(kind, digest) of all inputs of an action, by its form."""
        try:
            form = load(self.cas.read(key))
            return [(str(one["kind"]), str(one["digest"])) for one in form["inputs"].values()]
        except (StoreError, ValueError, LookupError, TypeError, AttributeError):
            return []  # no action form (any more): a pinned blob, or a key from elsewhere

    # sweep

    def _sweep_outputs(self) -> None:
        for part in ("out", "evidence", "accelerants"):
            for path in _listing(self.layout.root / part):
                if path.name not in self.keys and not self._is_new(path):
                    self.swept.outputs += part == "out"
                    self._remove(path, count=part != "out")

    def _sweep_records(self) -> None:
        for key, found in self.realisations.items():
            if key in self.keys:
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
        for folder in _listing(self.layout.root / "cas"):
            for path in _listing(folder):
                digest = path.name.removesuffix(".x")
                facts = path.lstat()
                if digest in self.digests or facts.st_ctime_ns >= self.since:
                    self.swept.kept_blobs += 1
                    self.swept.kept_bytes += facts.st_size
                    continue
                self.swept.blobs += 1
                # the disk gets back what is linked from nowhere else but out/, which went before
                self._remove(path)

    def _sweep_progress(self) -> None:
        for path in _listing(self.layout.root / "progress"):
            if path.name not in self.keys and not self._is_new(path):
                self.swept.progress += 1
                self._remove(path)

    def _sweep_leftovers(self) -> None:
        for path in _listing(self.layout.tmp):
            if not _alive(path.name) and not self._is_new(path):
                self.swept.leftovers += 1
                self._remove(path)
        for path in _listing(self.layout.quarantine):
            self.swept.leftovers += 1
            self._remove(path)
        for folder in (self.layout.state, self.layout.state / "snapshots"):
            for path in _listing(folder):  # what a killed build was writing aside: <name>.json.<pid>
                name, _, pid = path.name.rpartition(".")
                if name.endswith(".json") and pid.isdigit() and not _alive(pid):
                    self.swept.leftovers += 1
                    self._remove(path)
        if not self.dry_run:
            self._sweep_locks()

    def _sweep_locks(self) -> None:
        """Remove the lock files of builds that were killed; whoever lives has his locked."""
        locks = Locks(self.layout)
        for path in _listing(self.layout.lock("x").parent):
            name = path.name.removesuffix(".lock")
            if name != "store" and (lock := locks.acquire(name, timeout_s=0)) is not None:
                lock.release()  # which takes its file along

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


def _listing(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _two_levels(folder: Path) -> Iterator[Path]:
    for outer in _listing(folder):
        yield from _listing(outer)


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
