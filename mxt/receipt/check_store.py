"""What a receipt says about a store: blobs, folders, materialised outputs, records, evidence.

Looks twice at everything: first it lists what must be there, so that all files are hashed together;
then it compares. It changes nothing: no seal is believed, nothing is mended or set aside.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from mxt.action.action import ActionId
from mxt.receipt.given import Given
from mxt.receipt.hashing import HashingError
from mxt.receipt.receipt import StatedAction
from mxt.receipt.statement import output_subjects
from mxt.store.digest import hash_bytes
from mxt.store.realisation import Output, RunRecord
from mxt.store.records import REALISATION_TYPE, RUN_TYPE, open_record
from mxt.store.tree_object import MAX_DEPTH, Entry, escapes, parse_tree

MAX_TREE_BYTES = 1 << 28

PublicOf = Callable[[str], bytes | None]


class Folder(NamedTuple):
    """All that a folder's tree objects list, by path; whole is False where one could not be read."""

    entries: dict[str, Entry]
    whole: bool


class StoreCheck:
    """Call `plan`, run the hashing, call `compare`."""

    def __init__(self, given: Given) -> None:
        self._given = given
        self._folders: dict[str, Folder] = {}
        self._blobs: dict[str, tuple[int, str]] = {}
        self._out: list[tuple[str, str, Entry]] = []
        self._evidence: list[tuple[str, str, str]] = []

    def plan(self, names: Mapping[ActionId, str], runs: Mapping[str, RunRecord], public_of: PublicOf) -> None:
        """List every file that must be hashed; small objects are checked at once.

        names, runs: of StatementCheck. public_of: the public key behind a fingerprint, None if unknown.
        """
        for action in self._given.statement.actions:
            name = names[action.id]
            for output in action.outputs.values():
                self._list_output(output, f"{name}/{output.path}")
        self._subjects(names)
        for digest in self._blobs:
            for executable in (False, True):
                place = self._given.layout.blob(digest, executable)
                if os.path.lexists(place):
                    self._given.hashing.want(place, sha256=True)
        for key, action in {a.key: a for a in self._given.statement.actions}.items():
            self._form(action)
            self._list_out(action, names[action.id])
            run = runs.get(names[action.id])
            self._records(key, names[action.id], public_of)
            if run is not None:
                self._list_evidence(key, run)

    def compare(self) -> None:
        """Hold what was hashed against what is stated."""
        for digest, (size, what) in self._blobs.items():
            self._compare_blob(digest, size, what)
        for path, what, entry in self._out:
            self._compare_file(path, entry.digest, "output", f"the materialised output {what} differs")
        for path, digest, what in self._evidence:
            self._compare_file(path, digest, "evidence", f"the evidence {what} differs")

    # ---- outputs: blobs and tree objects ---------------------------------------------------------

    def _list_output(self, output: Output, what: str) -> None:
        if output.kind == "file":
            self._blobs.setdefault(output.digest, (output.size, what))
            return
        if output.digest not in self._folders:
            entries: dict[str, Entry] = {}
            whole = self._walk(output.digest, "", 0, entries, what)
            self._folders[output.digest] = Folder(entries, whole)
        folder = self._folders[output.digest]
        size = sum(entry.size for entry in folder.entries.values() if entry.kind == "file")
        if folder.whole and size != output.size:
            self._given.result.mismatch(
                "tree", f"receipt: {what}", "the folder has another size", output.size, size
            )
        for path, entry in folder.entries.items():
            if entry.kind == "file":
                self._blobs.setdefault(entry.digest, (entry.size, f"{what}/{path}"))

    def _walk(self, digest: str, prefix: str, depth: int, entries: dict[str, Entry], what: str) -> bool:
        """Read a tree object and those below it; whether all could be read."""
        shown = f"{what}/{prefix}".rstrip("/")
        data = self._small_blob(digest, "tree", f"the list of the folder {shown}")
        if data is None:
            return False
        try:
            found = parse_tree(data)
        except ValueError as error:
            self._given.result.mismatch(
                "tree",
                self._given.show(self._given.layout.blob(digest)),
                f"the list of the folder {shown} is malformed",
                "a tree object",
                error,
            )
            return False
        whole = True
        for entry in found:
            path = prefix + entry.name
            entries[path] = entry
            if entry.kind == "symlink" and escapes(entry.target, depth):
                self._given.result.mismatch(
                    "tree",
                    self._given.show(self._given.layout.blob(digest)),
                    f"the symlink {what}/{path} leads out of its folder",
                    "a target inside",
                    entry.target,
                )
            if entry.kind == "dir" and depth < MAX_DEPTH:
                whole &= self._walk(entry.digest, f"{path}/", depth + 1, entries, what)
        return whole

    def _small_blob(self, digest: str, kind: str, what: str) -> bytes | None:
        """The bytes of a blob that is a list or a form, if they are right in every form that is there."""
        good: bytes | None = None
        seen = False
        for executable in (False, True):
            place = self._given.layout.blob(digest, executable)
            try:
                with open(place, "rb") as file:
                    data = file.read(MAX_TREE_BYTES)
            except FileNotFoundError:
                continue
            except OSError as error:
                seen = True
                self._given.result.mismatch(
                    kind, self._given.show(place), f"{what} cannot be read", digest, error.strerror
                )
                continue
            seen = True
            if (found := hash_bytes(data)) != digest:
                self._given.result.mismatch(kind, self._given.show(place), f"{what} differs", digest, found)
            else:
                good = data
        if not seen:
            place = self._given.layout.blob(digest)
            self._given.result.mismatch(
                kind, self._given.show(place), f"{what} is missing", digest, "no such blob"
            )
        return good

    def _compare_blob(self, digest: str, size: int, what: str) -> None:
        seen = False
        for executable in (False, True):
            place = self._given.layout.blob(digest, executable)
            if not os.path.lexists(place):
                continue
            seen = True
            try:
                found = self._given.hashing.of(place)
            except (HashingError, KeyError) as error:
                self._given.result.mismatch(
                    "blob", self._given.show(place), f"the blob of {what} is unreadable", digest, error
                )
                continue
            if found.digest != digest:
                self._given.result.mismatch(
                    "blob", self._given.show(place), f"the blob of {what} differs", digest, found.digest
                )
            elif found.size != size:
                self._given.result.mismatch(
                    "blob", self._given.show(place), f"the blob of {what} has another size", size, found.size
                )
        if not seen:
            place = self._given.layout.blob(digest)
            self._given.result.mismatch(
                "blob", self._given.show(place), f"the blob of {what} is missing", digest, "no such blob"
            )

    # ---- subjects ---------------------------------------------------------------------------------

    def _subjects(self, names: Mapping[ActionId, str]) -> None:
        expected: dict[str, str] = {}
        unknown: list[str] = []
        for action in self._given.statement.actions:
            for output in action.outputs.values():
                name = names[action.id]
                folder = self._folders.get(output.digest) if output.kind == "dir" else None
                if folder is not None and not folder.whole:
                    unknown.append(f"{name}/{output.path}/")
                    continue
                files = (
                    [(p, e.digest) for p, e in folder.entries.items() if e.kind == "file"] if folder else []
                )
                expected.update(output_subjects(name, output, files))
        stated = self._given.statement.subjects
        for subject in sorted(expected.keys() | stated.keys()):
            if subject not in expected and any(subject.startswith(prefix) for prefix in unknown):
                continue
            found = stated[subject][0] if subject in stated else "no such subject"
            wanted = expected.get(subject, "no such file among the outputs")
            if found != wanted:
                self._given.result.mismatch(
                    "subject",
                    f"receipt: subject {subject}",
                    "the subject is not the output's file",
                    wanted,
                    found,
                )
        self._given.result.files = len(stated)
        self._given.result.bytes = sum(
            o.size for a in self._given.statement.actions for o in a.outputs.values()
        )

    def compare_sha256(self) -> None:
        """The SHA-256 digests of the subjects, of which BLAKE3 says nothing."""
        import hashlib

        for subject, (digest, sha256) in self._given.statement.subjects.items():
            if digest in self._folders:
                data = self._small_blob(digest, "tree", f"the list of the folder {subject}")
                computed = hashlib.sha256(data).hexdigest() if data is not None else None
            else:
                computed = self._sha256(digest)
            if computed is not None and computed != sha256:
                self._given.result.mismatch(
                    "subject",
                    f"receipt: subject {subject}",
                    "the SHA-256 of the subject differs",
                    sha256,
                    f"{computed} (recomputed)",
                )

    def _sha256(self, digest: str) -> str | None:
        for executable in (False, True):
            try:
                found = self._given.hashing.of(self._given.layout.blob(digest, executable))
            except (HashingError, KeyError):
                continue
            if found.digest == digest:
                return found.sha256
        return None

    # ---- what an action left -------------------------------------------------------------------------

    def _form(self, action: StatedAction) -> None:
        # the stated form is held against the key, so this holds it against the stored one
        self._small_blob(action.key, "form", f"the stored form of '{action.id}'")

    def _list_out(self, action: StatedAction, name: str) -> None:
        root = self._given.layout.out(action.key)
        if not root.is_dir():
            if os.path.lexists(root):
                self._given.result.mismatch(
                    "output", self._given.show(root), "not a folder", "the outputs of " + name, "a file"
                )
            else:
                self._given.result.note(
                    self._given.show(root), f"the outputs of {name} are not materialised here"
                )
            return
        expected: dict[str, Entry] = {}
        for output in action.outputs.values():
            parts = output.path.split("/")
            for depth in range(1, len(parts)):
                expected.setdefault("/".join(parts[:depth]), Entry(parts[depth - 1], "dir"))
            expected[output.path] = Entry(
                parts[-1], output.kind, output.digest, output.size, output.executable
            )
            if output.kind == "dir":
                folder = self._folders[output.digest]
                if not folder.whole:
                    return
                expected |= {f"{output.path}/{path}": entry for path, entry in folder.entries.items()}
        found = dict(_list(root))
        for path in sorted(expected.keys() | found.keys()):
            self._compare_entry(root / path, f"{name}/{path}", expected.get(path), found.get(path))

    def _compare_entry(
        self, path: Path, what: str, expected: Entry | None, facts: os.stat_result | None
    ) -> None:
        kind = _kind(facts)
        if expected is None or facts is None or kind != expected.kind:
            problem = (
                "is not declared"
                if expected is None
                else "is missing"
                if facts is None
                else "is something else"
            )
            wanted = expected.kind if expected is not None else "nothing"
            self._given.result.mismatch(
                "output", self._given.show(path), f"the materialised output {what} {problem}", wanted, kind
            )
        elif expected.kind == "symlink":
            if (target := os.readlink(path)) != expected.target:
                self._given.result.mismatch(
                    "output", self._given.show(path), f"the symlink {what} differs", expected.target, target
                )
        elif expected.kind == "file":
            executable = bool(facts.st_mode & stat.S_IXUSR)
            if executable != expected.executable:
                self._given.result.mismatch(
                    "output",
                    self._given.show(path),
                    f"the executable bit of {what} differs",
                    expected.executable,
                    executable,
                )
            self._given.hashing.want(path)
            self._out.append((str(path), what, expected))

    # ---- records and evidence ------------------------------------------------------------------------

    def _records(self, key: str, name: str, public_of: PublicOf) -> None:
        for sort, kind, folder in (
            ("realisation", REALISATION_TYPE, self._given.layout.action(key)),
            ("run", RUN_TYPE, self._given.layout.runs(key)),
        ):
            quoted = self._given.statement.records.get(f"{sort}/{name}")
            own = ""
            if quoted is not None:
                own = f"{quoted.run}.json" if sort == "run" else f"{_operator(quoted.data, kind)}.json"
                self._compare_record(folder / own, quoted.data, sort, name)
            for path in _files(folder):
                if path.name != own:
                    self._other_record(path, kind, sort, name, public_of)

    def _compare_record(self, path: Path, quoted: bytes, sort: str, name: str) -> None:
        try:
            data = path.read_bytes()
        except OSError as error:
            self._given.result.mismatch(
                sort,
                self._given.show(path),
                f"the {sort} of {name} is not in the store",
                "the record that the receipt quotes",
                (error.strerror or str(error)).lower(),
            )
            return
        if data != quoted:
            at = next(
                (i for i, (a, b) in enumerate(zip(data, quoted, strict=False)) if a != b),
                min(len(data), len(quoted)),
            )
            self._given.result.mismatch(
                sort,
                self._given.show(path),
                f"the {sort} of {name} is not the one that the receipt quotes, from byte {at}",
                hash_bytes(quoted),
                hash_bytes(data),
            )

    def _other_record(self, path: Path, kind: str, sort: str, name: str, public_of: PublicOf) -> None:
        """Records of the same key that the receipt does not quote must hold too."""
        what = f"another {sort} of {name}"
        try:
            record = open_record(path.read_bytes(), kind)
        except (OSError, ValueError) as error:
            self._given.result.mismatch(
                sort, self._given.show(path), f"{what} is malformed", "a signed record", error
            )
            return
        public = public_of(record.keyid)
        if public is None:
            self._given.result.note(
                self._given.show(path), f"{what} is signed by a key that you do not know, {record.keyid}"
            )
        elif not record.verify(public):
            self._given.result.mismatch(
                sort,
                self._given.show(path),
                f"the signature of {what} does not hold",
                f"a signature by {record.keyid}",
                "another",
            )

    def _list_evidence(self, key: str, run: RunRecord) -> None:
        root = self._given.layout.evidence(key, run.name)
        for path, digest in run.evidence.items():
            self._given.hashing.want(root / path)
            self._evidence.append((str(root / path), digest, path))
        for path, facts in _list(root):
            if path not in run.evidence and _kind(facts) != "dir":
                self._given.result.mismatch(
                    "evidence",
                    self._given.show(root / path),
                    "evidence that the run does not state",
                    "nothing",
                    _kind(facts),
                )

    def _compare_file(self, path: str, digest: str, kind: str, what: str) -> None:
        try:
            found = str(self._given.hashing.of(path).digest)
        except HashingError as error:
            found = str(error)
        if found != digest:
            self._given.result.mismatch(kind, self._given.show(path), what, digest, found)


def _operator(data: bytes, kind: str) -> str:
    try:
        return open_record(data, kind).keyid
    except ValueError:  # said by the check of the statement
        return "unknown"


def _list(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    """(path relative to root, lstat) of everything below root; nothing where it is no folder."""
    stack = [""]
    while stack:
        folder = stack.pop()
        try:
            entries = list(os.scandir(root / folder))
        except OSError:
            continue
        for entry in entries:
            path = f"{folder}/{entry.name}" if folder else entry.name
            yield path, entry.stat(follow_symlinks=False)
            if entry.is_dir(follow_symlinks=False):
                stack.append(path)


def _files(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _kind(facts: os.stat_result | None) -> str:
    if facts is None:
        return "nothing"
    tests = (("file", stat.S_ISREG), ("dir", stat.S_ISDIR), ("symlink", stat.S_ISLNK))
    return next((name for name, test in tests if test(facts.st_mode)), "a special file")
