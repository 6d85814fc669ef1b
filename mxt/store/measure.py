"""How much of what a store holds: one walk, every inode counted once, in the place that comes first."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from mxt.store.layout import Layout

# by action key; blobs are counted before these, so that what is linked from them counts there only
KEYED = ("out", "evidence", "progress", "accelerants")
LOG = "log.txt"
_RECORDS = ("ac", "runs")


@dataclass(slots=True)
class Amount:
    """A number of files (or, for out/, folders) and their bytes."""

    count: int = 0
    bytes: int = 0

    def add(self, other: Amount) -> None:
        self.count += other.count
        self.bytes += other.bytes


@dataclass
class Measured:
    """What lies where. blobs: digest -> files, of which the executable form is another one.

    keyed: part -> key -> files not counted before. logs: the part of evidence that is logs.
    shared: bytes of out/ that are links to blobs. records: key -> signed records. rest: any other name
    in the store's folder.
    """

    blobs: dict[str, Amount] = field(default_factory=dict)
    keyed: dict[str, dict[str, Amount]] = field(default_factory=dict)
    records: dict[str, Amount] = field(default_factory=dict)
    rest: dict[str, Amount] = field(default_factory=dict)
    logs: Amount = field(default_factory=Amount)
    shared: int = 0

    @property
    def bytes(self) -> int:
        """All that the store takes."""
        parts = [self.blobs, *self.keyed.values(), self.records, self.rest]
        return sum(one.bytes for part in parts for one in part.values())

    def of_key(self, key: str) -> int:
        """Bytes that lie in folders of this key's own, without blobs and progress."""
        places = [self.keyed[part] for part in ("out", "evidence", "accelerants")]
        return sum(place[key].bytes for place in [*places, self.records] if key in place)

    def of_blob(self, digest: str) -> int:
        """Bytes of a blob in both its forms; 0 where there is none."""
        return self.blobs[digest].bytes if digest in self.blobs else 0


def measure(layout: Layout) -> Measured:
    """Walk the store. What vanishes meanwhile, or cannot be looked at, is left out."""
    found = Measured()
    seen: set[tuple[int, int]] = set()
    for _, facts, name in _files(f"{layout.text}/cas"):
        amount = found.blobs.setdefault(name.removesuffix(".x"), Amount())
        _count(amount, facts, seen)
    for part in KEYED:
        keys = found.keyed[part] = {}
        for key, place in _entries(f"{layout.text}/{part}"):
            amount = keys[key] = Amount()
            for path, facts, name in _files(place):
                if (facts.st_dev, facts.st_ino) in seen:
                    found.shared += facts.st_size if part == "out" else 0
                    continue
                _count(amount, facts, seen)
                if part == "evidence" and name == LOG and path.count("/") == place.count("/") + 2:
                    found.logs.add(Amount(1, facts.st_size))
    for part in _RECORDS:
        for _, outer in _entries(f"{layout.text}/{part}"):
            for key, place in _entries(outer):
                amount = found.records.setdefault(key, Amount())
                for _, facts, _ in _files(place):
                    _count(amount, facts, seen)
    counted = {"cas", *KEYED, *_RECORDS}
    for name, place in _entries(layout.text):
        if name not in counted:
            amount = found.rest[name] = Amount()
            for _, facts, _ in _files(place):
                _count(amount, facts, seen)
    return found


def run_time(name: str) -> float:
    """When a run began, seconds since 1970, by the name of its record or evidence; 0.0 for other names."""
    try:
        return datetime.strptime(f"{name.partition('Z-')[0]}+0000", "%Y-%m-%dT%H%M%S.%f%z").timestamp()
    except ValueError:
        return 0.0


def run_times(layout: Layout) -> dict[str, float]:
    """Action key -> when its newest run began, failed ones included."""
    found: dict[str, float] = {}
    places = [entry for _, outer in _entries(f"{layout.text}/runs") for entry in _entries(outer)]
    for key, place in [*places, *_entries(f"{layout.text}/evidence")]:
        newest = max((name for name, _ in _entries(place)), default="")
        found[key] = max(found.get(key, 0.0), run_time(newest))
    return found


def _count(amount: Amount, facts: os.stat_result, seen: set[tuple[int, int]]) -> None:
    identity = (facts.st_dev, facts.st_ino)
    if facts.st_nlink > 1:
        if identity in seen:
            return
        seen.add(identity)
    amount.count += 1
    amount.bytes += facts.st_size


def _entries(folder: str) -> list[tuple[str, str]]:
    try:
        with os.scandir(folder) as listing:
            return sorted((entry.name, entry.path) for entry in listing)
    except OSError:
        return []


def _files(place: str) -> Iterator[tuple[str, os.stat_result, str]]:
    """(path, lstat, name) of a file, or of all files and symlinks below a folder, however deep."""
    stack = [place]
    while stack:
        path = stack.pop()
        try:
            facts = os.lstat(path)
            if stat.S_ISDIR(facts.st_mode):
                with os.scandir(path) as listing:
                    stack += [entry.path for entry in listing]
                continue
        except OSError:
            continue
        yield path, facts, path.rpartition("/")[2]
