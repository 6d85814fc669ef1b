"""What a receipt says about a workspace: the links in mxt-out, sources, recipe and locks as they are now.

A source that has changed since is no mismatch: the receipt tells what a result was made of.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from mxt.action.action import ActionId
from mxt.errors import StoreError
from mxt.receipt.given import Given
from mxt.receipt.hashing import HashingError
from mxt.receipt.receipt import RECEIPT_NAME, REPORT_NAME, Dependency
from mxt.store.digest import FileHash, hash_fd, open_regular
from mxt.store.tree import FileFacts, build_tree


class WorkspaceCheck:
    """Call `plan`, run the hashing, call `compare`."""

    def __init__(self, given: Given, root: Path) -> None:
        self._given = given
        self._root = root

    def plan(self) -> None:
        """List the files to hash."""
        for dependency in self._given.statement.dependencies:
            place = self._root / dependency.path
            if dependency.kind in ("file", "lock"):
                self._given.hashing.want(place, sha256=True)
            elif dependency.kind == "dir" and place.is_dir():
                for path in _regular_files(place):
                    self._given.hashing.want(path)
        if self._given.statement.recipe is not None:
            self._given.hashing.want(self._root / self._given.statement.recipe[0], sha256=True)

    def compare(self) -> None:
        for dependency in self._given.statement.dependencies:
            if dependency.kind == "image":
                continue
            found = self._now(dependency)
            words = {"lock": "toolchain lock"}.get(dependency.kind, "source")
            digests = (dependency.digests["blake3"], dependency.digests["sha256"])
            self._compare(f"resolvedDependencies: {dependency.name}", dependency.name, words, digests, found)
        if self._given.statement.recipe is not None:
            path, digests = self._given.statement.recipe
            self._compare("externalParameters.recipe", path, "recipe", digests, self._file(self._root / path))

    def _compare(
        self, place: str, name: str, words: str, digests: tuple[str, str], found: tuple[str, str] | str
    ) -> None:
        if isinstance(found, str):
            self._given.result.note(name, f"the {words} is {found} in this workspace")
        elif found[0] != digests[0]:
            self._given.result.note(name, f"the {words} has changed since")
        elif found[1] != digests[1]:
            self._given.result.mismatch(
                "source",
                f"receipt: {place}",
                f"the SHA-256 of the {words} differs",
                digests[1],
                f"{found[1]} (recomputed)",
            )

    def _now(self, dependency: Dependency) -> tuple[str, str] | str:
        """(blake3, sha256) of a dependency as it is in the workspace, or a word for what it is instead."""
        place = self._root / dependency.path
        if dependency.kind == "slice":
            return self._slice(place, dependency)
        if dependency.kind == "dir":
            return self._folder(place)
        return self._file(place)

    def _file(self, place: Path) -> tuple[str, str] | str:
        try:
            found = self._given.hashing.of(place)
        except HashingError as error:
            return str(error)
        return found.digest, found.sha256

    def _slice(self, place: Path, dependency: Dependency) -> tuple[str, str] | str:
        try:
            fd = open_regular(place)
        except FileNotFoundError:
            return "missing"
        except (OSError, StoreError):
            return "unreadable"
        try:
            os.lseek(fd, dependency.offset, os.SEEK_SET)
            found = hash_fd(fd, sha256=True, length=dependency.length)
        finally:
            os.close(fd)
        return found.digest, found.sha256

    def _folder(self, place: Path) -> tuple[str, str] | str:
        if not place.is_dir():
            return "missing"
        objects: dict[str, bytes] = {}

        def facts(files: list[str]) -> list[FileFacts]:
            hashes: list[FileHash] = [self._given.hashing.of(path) for path in files]
            return [
                FileFacts(h.digest, h.size, bool(os.lstat(path).st_mode & 0o100))
                for h, path in zip(hashes, files, strict=True)
            ]

        try:
            found = build_tree(place, facts, lambda digest, data: objects.update({digest: data}))
        except (OSError, StoreError, HashingError, KeyError):
            return "unreadable"
        return found.digest, hashlib.sha256(objects[found.digest]).hexdigest()

    # ---- mxt-out --------------------------------------------------------------------------------------

    def links(self, receipt: Path, names: Mapping[ActionId, str]) -> None:
        """The links beside the receipt must lead to the outputs of its actions."""
        folder = receipt.parent
        outputs = os.path.realpath(self._root / "mxt-out") + os.sep
        if receipt.name != RECEIPT_NAME or not os.path.realpath(folder).startswith(outputs):
            return
        keys: dict[str, str] = {}
        for action in self._given.statement.actions:
            # a bundle calls a member by its last part, with "/" as "_"
            stage = names[action.id].removesuffix(f"/{action.id.name}").replace("/", "_")
            keys[f"{stage}/{action.id.name}" if action.id.name else stage] = action.key
        for path in sorted(folder.iterdir()):
            if path.name == RECEIPT_NAME or (path.name == REPORT_NAME and not path.is_symlink()):
                continue
            target = os.path.realpath(path)
            if not path.is_symlink():
                self._given.result.mismatch(
                    "link", self._given.show(path), "no link that mxt made", "nothing", "a file"
                )
            elif target.startswith(outputs) and os.path.isdir(target):
                # a member of several actions is a folder of links; an inner bundle has its own receipt
                if not os.path.lexists(os.path.join(target, RECEIPT_NAME)):
                    for below in sorted(Path(target).iterdir()):
                        self._link(below, f"{path.name}/{below.name}", keys)
            else:
                self._link(path, path.name, keys)

    def _link(self, path: Path, name: str, keys: Mapping[str, str]) -> None:
        out = os.path.realpath(self._given.layout.root / "out") + os.sep
        target = os.path.realpath(path)
        key = target.removeprefix(out) if target.startswith(out) else ""
        expected = keys.get(name)
        if key and (key == expected or (expected is None and key in keys.values())):
            return
        if not key or not os.path.isdir(target) or key in keys.values():
            wanted = f"out/{expected}" if expected is not None else "the outputs of an action"
            found = os.readlink(path) if path.is_symlink() else "a file or folder"
            self._given.result.mismatch(
                "link", self._given.show(path), "the link leads elsewhere", wanted, found
            )
        else:
            self._given.result.note(self._given.show(path), "leads to another result than the receipt's")


def _regular_files(folder: Path) -> Iterator[str]:
    for place, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(place, name)
            if not os.path.islink(path):
                yield path
