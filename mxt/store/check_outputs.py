"""The materialised outputs of a store as a check finds them: what is no link to a whole blob, or strange."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from mxt.errors import StoreError
from mxt.store.check_blobs import MISSING, Blobs, Damage
from mxt.store.digest import hash_file, kind_of
from mxt.store.layout import is_sealed
from mxt.store.realisation import Realisation
from mxt.store.tree_object import MAX_DEPTH, Entry


class Outputs:
    """Looks at out/<key>. copies: digest -> path of a whole file that is no link to the blob.

    hashed: bytes of such files, which are read for themselves.
    """

    def __init__(self, blobs: Blobs, *, quick: bool) -> None:
        self.blobs = blobs
        self.layout = blobs.layout
        self.quick = quick
        self.copies: dict[str, str] = {}
        self.hashed = 0

    def look(self, realisation: Realisation) -> Iterator[Damage]:
        """Every damage in a materialised folder; nothing where the key has none."""
        key = realisation.key
        top = str(self.layout.out(key))
        try:
            facts = os.lstat(top)
        except OSError:
            return
        if not stat.S_ISDIR(facts.st_mode):
            yield self._damage(key, top, f"is {kind_of(facts.st_mode)}, not a folder", facts)
            return
        expected = self._expected(realisation)
        broken: set[str] = set()  # what lies in a folder that is missing says nothing more
        for relative, entry in expected.items():
            path = f"{top}/{relative}"
            what = "" if relative.rpartition("/")[0] in broken else self._fault(path, entry)
            if what or relative.rpartition("/")[0] in broken:
                broken.add(relative)
            if what:
                yield self._damage(key, path, what, _facts(path))
        yield from self._strangers(key, top, expected)

    def _expected(self, realisation: Realisation) -> dict[str, Entry]:
        expected: dict[str, Entry] = {}
        for output in realisation.outputs.values():
            parts = output.path.split("/")
            for count in range(1, len(parts)):
                expected.setdefault("/".join(parts[:count]), Entry("", "parent"))
            expected[output.path] = Entry("", output.kind, output.digest, output.size, output.executable)
            if output.kind == "dir":
                self._expect_below(output.path, output.digest, expected, 0)
        return expected

    def _expect_below(self, prefix: str, digest: str, expected: dict[str, Entry], depth: int) -> None:
        entries = self.blobs.tree(digest)
        if entries is None or depth > MAX_DEPTH:
            expected[prefix] = Entry("", "unknown")  # what belongs in it cannot be said
            return
        for entry in entries:
            expected[f"{prefix}/{entry.name}"] = entry
            if entry.kind == "dir":
                self._expect_below(f"{prefix}/{entry.name}", entry.digest, expected, depth + 1)

    def _fault(self, path: str, entry: Entry) -> str:
        """What is wrong with what lies at path; "" if nothing is."""
        facts = _facts(path)
        if facts is None:
            return "" if entry.kind == "parent" else MISSING
        mode = facts.st_mode
        if entry.kind in ("dir", "parent", "unknown"):
            return "" if stat.S_ISDIR(mode) else f"is {kind_of(mode)}, not a folder"
        if entry.kind == "symlink":
            right = stat.S_ISLNK(mode) and os.readlink(path) == entry.target
            return "" if right else "is not the symlink that was made"
        if not stat.S_ISREG(mode):
            return f"is {kind_of(mode)}, not a regular file"
        if (facts.st_ino, facts.st_dev) in self.blobs.bad:
            return "is a link to the damaged blob"
        if facts.st_size != entry.size:
            return f"has {facts.st_size} bytes, not {entry.size}"
        if bool(mode & stat.S_IXUSR) != entry.executable:
            return "has another executable bit"
        if self._is_link(entry.digest, facts) or (
            self.quick and is_sealed(facts) and entry.digest in self.blobs.sound
        ):
            return ""
        return self._hash(path, entry.digest)

    def _is_link(self, digest: str, facts: os.stat_result) -> bool:
        if digest not in self.blobs.sound:
            return False
        for executable in (False, True):
            other = _facts(self.layout.blob(digest, executable))
            if other is not None and (other.st_ino, other.st_dev) == (facts.st_ino, facts.st_dev):
                return True
        return False

    def _hash(self, path: str, digest: str) -> str:
        try:
            found = hash_file(path)
        except (OSError, StoreError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            return f"cannot be read: {(why or '').lower()}"
        self.hashed += found.size
        if found.digest != digest:
            return f"holds other bytes, of digest {found.digest[:12]}"
        self.copies.setdefault(digest, path)
        return ""

    def _strangers(self, key: str, top: str, expected: dict[str, Entry]) -> Iterator[Damage]:
        folders = [""]
        while folders:
            folder = folders.pop()
            try:
                names = sorted(os.listdir(f"{top}/{folder}"))
            except OSError:
                continue
            for name in names:
                relative = f"{folder}/{name}" if folder else name
                entry = expected.get(relative)
                if entry is None:
                    if not name.startswith(".mxt-"):  # a build beside this check is about to rename it
                        path = f"{top}/{relative}"
                        yield self._damage(key, path, "does not belong there", _facts(path))
                elif entry.kind in ("dir", "parent"):
                    folders.append(relative)

    def _damage(self, key: str, path: str, what: str, facts: os.stat_result | None) -> Damage:
        judged = (facts.st_ino, facts.st_ctime_ns) if facts is not None else (0, 0)
        return Damage("output", os.path.relpath(path, self.layout.root), what, "", (key,), judged)


def _facts(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError:
        return None
