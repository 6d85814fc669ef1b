"""What of a store somebody may still want: from roots to the blobs, along the forms of actions.

A key keeps its form and outputs and, by way of its form's inputs, the keys that made those.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from mxt.action.canonical import load
from mxt.errors import StoreError
from mxt.store.cas import Cas
from mxt.store.layout import Layout
from mxt.store.realisation import Realisation
from mxt.store.records import REALISATION_TYPE, open_record
from mxt.store.tree import walk_tree

_TREE = b'{"entries":['


class Marks:
    """Marked keys and digests. realisations: of each key, as they lie on the disk."""

    def __init__(self, layout: Layout, cas: Cas) -> None:
        self.layout = layout
        self.cas = cas
        self.keys: set[str] = set()
        self.digests: set[str] = set()
        self.realisations: dict[str, list[tuple[Path, Realisation]]] = {}
        self._makers: dict[str, set[str]] = {}
        self._walked: set[str] = set()
        self._fresh: list[tuple[set[str], str]] = []
        self._read_records()

    def _read_records(self) -> None:
        for folder in _two_levels(self.layout.root / "ac"):
            for path in listing(folder):
                try:
                    record = open_record(path.read_bytes(), REALISATION_TYPE)
                    realisation = Realisation.parse(record.payload, record.keyid)
                except (OSError, ValueError):
                    continue
                self.realisations.setdefault(folder.name, []).append((path, realisation))
                for output in realisation.outputs.values():
                    self._makers.setdefault(output.digest, set()).add(folder.name)

    def from_roots(self, names: Iterable[str]) -> None:
        """Mark keys, or blobs and folders that a pin names, with all that they need."""
        waiting = list(names)
        while waiting:
            name = waiting.pop()
            if name in self.keys:
                continue
            self._mark(self.keys, name)
            self._mark(self.digests, name)  # a key's own blob is its action form
            if name not in self.realisations and self._is_tree(name):
                self._mark_output("dir", name)
            for _, realisation in self.realisations.get(name, ()):
                for output in realisation.outputs.values():
                    self._mark_output(output.kind, output.digest)
            for kind, digest in self._inputs(name):
                waiting.extend(self._makers.get(digest, ()))
                self._mark_output(kind, digest)

    def alone(self, key: str) -> None:
        """Mark a key and its form, nothing that it was made from."""
        self._mark(self.keys, key)
        self._mark(self.digests, key)

    def what_costs_nothing(self) -> None:
        """Mark records all of whose bytes are marked anyway."""
        for name, found in self.realisations.items():
            outputs = [output for _, realisation in found for output in realisation.outputs.values()]
            if all(output.digest in self.digests for output in outputs):
                self.alone(name)

    def begin(self) -> None:
        """From here on `fresh` counts, and `undo` takes back."""
        self._fresh = []

    def fresh(self) -> tuple[list[str], list[str]]:
        """Keys and digests marked since `begin`."""
        keys = [name for place, name in self._fresh if place is self.keys]
        return keys, [name for place, name in self._fresh if place is self.digests]

    def undo(self) -> None:
        """Unmark what was marked since `begin`."""
        for place, name in self._fresh:
            place.discard(name)
        self._fresh = []

    def _mark(self, place: set[str], name: str) -> None:
        if name not in place:
            place.add(name)
            self._fresh.append((place, name))

    def _mark_output(self, kind: str, digest: str) -> None:
        if digest in self._walked:
            return
        self._mark(self._walked, digest)
        self._mark(self.digests, digest)
        if kind == "dir":
            with contextlib.suppress(StoreError):  # an incomplete folder keeps what there is of it
                for _, entry in walk_tree(self.cas, digest):
                    if entry.digest:
                        self._mark(self.digests, entry.digest)

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


def linked_keys(layout: Layout, folder: str) -> Iterator[str]:
    """The keys that the symlinks below a folder lead to."""
    base = os.path.realpath(layout.root / "out") + "/"
    for place, folders, files in os.walk(folder):
        for name in folders + files:
            path = os.path.join(place, name)
            if os.path.islink(path):
                target = os.path.normpath(os.path.join(os.path.realpath(place), os.readlink(path)))
                if target.startswith(base):
                    yield target[len(base) :].split("/", 1)[0]


def listing(folder: Path) -> list[Path]:
    """What lies in a folder, sorted; nothing where there is none."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _two_levels(folder: Path) -> Iterator[Path]:
    for outer in listing(folder):
        yield from listing(outer)
