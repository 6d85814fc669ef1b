"""The workspace's own files as inputs: hashed once a build, and looked at again after each action."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from mxt.action.key import InputDigest
from mxt.errors import GraphError
from mxt.graph.snapshot import UNSURE
from mxt.loading.reads import Stat, stat_of
from mxt.store.file_index import SourceFile, SourceTree
from mxt.store.store import Store


class Sources:
    """Digests of source files and folders. Paths are relative to the workspace's root."""

    def __init__(self, root: Path, store: Store) -> None:
        self._root = root
        self._root_text = str(root)
        self._index = store.index
        self._files: dict[str, SourceFile] = {}
        self._trees: dict[str, SourceTree] = {}
        self._folders: dict[str, Stat | None] = {}

    def prepare(self, paths: Iterable[str]) -> None:
        """Hash many at once, before the first action asks. Raises GraphError for what is not there."""
        files = []
        for path in paths:
            full = self._root / path
            if full.is_dir():
                for folder, _, _ in os.walk(full):  # its stat before its content: an edit between shows
                    self._folders[os.path.relpath(folder, self._root)] = stat_of(folder)
                self._trees[path] = self._index.tree_digest_of(full)
            elif os.path.lexists(full):
                files.append(path)
            else:
                raise GraphError(f"the source '{path}' is gone", hint="restore it, or take it out of srcs")
        found = self._index.digest_many([self._root / path for path in files])
        self._files.update(zip(files, found, strict=True))

    def digest(self, path: str) -> InputDigest:
        if path not in self._files and path not in self._trees:
            self.prepare([path])
        if path in self._trees:
            return InputDigest("dir", self._trees[path].info.digest)
        return InputDigest("file", self._files[path].digest, self._files[path].executable)

    def changed(self, paths: Iterable[str]) -> str:
        """The first of these that somebody wrote to since it was hashed; "" if there is none."""
        for path in dict.fromkeys(paths):
            full = Path(f"{self._root_text}/{path}")
            if path in self._trees:
                if not self._index.tree_unchanged(full, self._trees[path]):
                    return path
            elif not self._index.unchanged(full, self._files[path]):
                return path
        return ""

    def looked_at(self) -> dict[str, Stat | None]:
        """Everything with the stat tuple it had when it was hashed."""
        found = dict(self._folders)
        found.update((path, _stat(file)) for path, file in self._files.items())
        for tree in self._trees.values():
            found.update((os.path.relpath(path, self._root), _stat(file)) for path, file in tree.sources)
        return found


def _stat(file: SourceFile) -> Stat:
    if file.racy:
        return UNSURE
    return (file.stat.size, file.stat.mtime_ns, file.stat.ctime_ns, file.stat.inode, file.stat.device)
