"""The blobs of a store as a check finds them: which are whole, which are not, and what folders hold."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mxt.errors import StoreError
from mxt.store.digest import EMPTY, hash_file, kind_of
from mxt.store.layout import Layout, is_sealed
from mxt.store.tree_object import MAX_DEPTH, Entry, parse_tree

_HEX = set("0123456789abcdef")

MISSING = "is missing"

# bytes looked at, bytes in all
OnProgress = Callable[[int, int], None]


def silent(done: int, total: int) -> None:
    """Show nothing."""


@dataclass(frozen=True)
class Damage:
    """kind: blob, lost, record, output, evidence, progress, index or stranger. place: below the store.

    what: a fact in lower case. digest: of a blob. keys: of the results that need it.
    judged: (inode, ctime in ns) of the file that was looked at; (0, 0) where there is none.
    """

    kind: str
    place: str
    what: str
    digest: str = ""
    keys: tuple[str, ...] = ()
    judged: tuple[int, int] = (0, 0)


class Blobs:
    """sound: digest -> size of every blob with a whole form. bad: (inode, device) of files that are not.

    count: files looked at. hashed: bytes read.
    """

    def __init__(self, layout: Layout, *, quick: bool, progress: OnProgress) -> None:
        self.layout = layout
        self.sound: dict[str, int] = {}
        self.bad: set[tuple[int, int]] = set()
        self.damages: dict[str, Damage] = {}
        self.count = 0
        self.hashed = 0
        self._trees: dict[str, list[Entry] | None] = {}
        files = list(self._files())
        total = 0 if quick else sum(facts.st_size for _, _, facts in files)
        done = 0
        for name, path, facts in files:
            self.count += 1
            self._look(name, path, facts, quick=quick)
            done += facts.st_size
            progress(done, total)

    def _files(self) -> Iterator[tuple[str, str, os.stat_result]]:
        try:
            folders = sorted(os.scandir(f"{self.layout.text}/cas"), key=lambda entry: entry.name)
        except OSError:
            return
        for folder in folders:
            try:
                with os.scandir(folder.path) as listing:
                    entries = sorted(listing, key=lambda entry: entry.name)
            except OSError as error:
                what = f"is no folder of blobs: {(error.strerror or '').lower()}"
                self._note("stranger", folder.path, what, os.lstat(folder.path))
                continue
            for entry in entries:
                try:
                    yield entry.name, entry.path, entry.stat(follow_symlinks=False)
                except OSError:  # gone meanwhile: not damaged
                    continue

    def _look(self, name: str, path: str, facts: os.stat_result, *, quick: bool) -> None:
        digest = name.removesuffix(".x")
        if len(digest) != 64 or not _HEX.issuperset(digest) or path.rpartition("/")[0][-2:] != digest[:2]:
            self._note("stranger", path, "is no blob by its name", facts)
        elif not stat.S_ISREG(facts.st_mode):
            self._note("blob", path, f"is {kind_of(facts.st_mode)}", facts, digest)
        elif facts.st_size == 0 and digest != EMPTY:
            self._note("blob", path, "is empty", facts, digest)
        elif quick and is_sealed(facts):
            self.sound[digest] = facts.st_size
        else:
            self._hash(path, facts, digest)

    def _hash(self, path: str, facts: os.stat_result, digest: str) -> None:
        try:
            found = hash_file(path)
        except FileNotFoundError:  # a build or a gc took it away: what lacks it then says so
            return
        except (OSError, StoreError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            self._note("blob", path, f"cannot be read: {(why or '').lower()}", facts, digest)
            return
        self.hashed += found.size
        if found.digest == digest:
            self.sound[digest] = found.size
        else:
            self._note("blob", path, f"holds other bytes, of digest {found.digest[:12]}", facts, digest)

    def _note(self, kind: str, path: str, what: str, facts: os.stat_result, digest: str = "") -> None:
        place = os.path.relpath(path, self.layout.root)
        judged = (facts.st_ino, facts.st_ctime_ns)
        self.damages[place] = Damage(kind, place, what, digest, (), judged)
        self.bad.add((facts.st_ino, facts.st_dev))

    def has(self, digest: str, size: int) -> bool:
        """Whether a blob is whole and has that size; one of another size is hashed, to see who is right."""
        found = self.sound.get(digest)
        if found is None:
            return self._came_later(digest, size)
        if found != size:
            del self.sound[digest]
            for executable in (False, True):
                path = self.layout.blob(digest, executable)
                if os.path.lexists(path):
                    self._hash(path, os.lstat(path), digest)
        return self.sound.get(digest) == size

    def _came_later(self, digest: str, size: int) -> bool:
        """A build beside this check may have stored it since the blobs were listed."""
        for executable in (False, True):
            path = self.layout.blob(digest, executable)
            if os.path.relpath(path, self.layout.root) in self.damages:
                continue
            try:
                facts = os.lstat(path)
            except OSError:
                continue
            if is_sealed(facts) and facts.st_size == size:
                self.sound[digest] = size
                return True
        return False

    def tree(self, digest: str) -> list[Entry] | None:
        """The entries of a stored folder; None where its object is not whole or is none."""
        if digest not in self._trees:
            self._trees[digest] = self._read_tree(digest)
        return self._trees[digest]

    def forget_trees(self) -> None:
        """Look again at folders: a repair may have found what they lacked."""
        self._trees.clear()

    def _read_tree(self, digest: str) -> list[Entry] | None:
        if digest not in self.sound and not self._came_later_unsized(digest):
            return None
        for executable in (False, True):
            try:
                with open(self.layout.blob(digest, executable), "rb") as file:
                    return parse_tree(file.read())
            except (OSError, ValueError):
                continue
        return None

    def _came_later_unsized(self, digest: str) -> bool:
        try:
            return self._came_later(digest, os.lstat(self.layout.blob(digest)).st_size)
        except OSError:
            return False

    def below(self, kind: str, digest: str, size: int, depth: int = 0) -> Iterator[tuple[str, int, bool]]:
        """(digest, size, whether it is whole) of an output and of everything in it; -1: no size is known."""
        if kind == "file":
            yield digest, size, self.has(digest, size)
            return
        entries = self.tree(digest) if depth <= MAX_DEPTH else None
        yield digest, -1, entries is not None
        for entry in entries or ():
            if entry.kind != "symlink":
                yield from self.below(entry.kind, entry.digest, entry.size, depth + 1)
