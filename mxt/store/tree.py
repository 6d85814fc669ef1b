"""Folders on the disk and in the store: making trees, storing, walking and materialising them.

What a tree is made of: see tree_object.py.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from typing import NamedTuple

from mxt.errors import StoreError
from mxt.store.cas import Cas
from mxt.store.digest import Digest, hash_bytes, hash_file, kind_of
from mxt.store.layout import make_parent
from mxt.store.os_errors import explain_os_error
from mxt.store.tree_object import MAX_DEPTH, Entry, encode_tree, escapes, parse_tree


class TreeInfo(NamedTuple):
    """A folder's digest, the bytes of all its files, and how many there are."""

    digest: Digest
    size: int
    files: int


class FileFacts(NamedTuple):
    """What a tree needs to know of a file."""

    digest: str
    size: int
    executable: bool


# making


def build_tree(
    folder: str | os.PathLike[str],
    hash_files: Callable[[list[str]], list[FileFacts]],
    put: Callable[[Digest, bytes], None] | None = None,
) -> TreeInfo:
    """The digest of a folder on the disk; hash_files gets all its regular files at once.

    put: receives each tree object. Raises StoreError for special files, names that are not
    UTF-8, and symlinks that leave the folder; OSError where it cannot be read.
    """
    top = os.fspath(folder)
    files: list[str] = []
    root = _scan(top, "", 0, files)
    facts = iter(hash_files(files))
    count = len(files)
    digest, size = _encode(root, facts, put)
    return TreeInfo(digest, size, count)


class _Folder(NamedTuple):
    name: str
    files: list[str]
    links: list[Entry]
    folders: list[_Folder]


def _scan(path: str, relative: str, depth: int, files: list[str]) -> _Folder:
    if depth > MAX_DEPTH:
        raise StoreError(f"folders are nested more than {MAX_DEPTH} deep", where=path)
    node = _Folder(os.path.basename(relative), [], [], [])
    with os.scandir(path) as listing:
        found = sorted(listing, key=lambda item: os.fsencode(item.name))
    below = []
    for item in found:
        inner = f"{relative}/{item.name}" if relative else item.name
        try:
            item.name.encode()
        except UnicodeEncodeError:
            raise StoreError(
                f"the name {os.fsencode(item.name)!r} is not UTF-8", where=path, hint="rename it"
            ) from None
        if item.is_symlink():
            target = os.readlink(item.path)
            try:
                bad = escapes(target, depth) or not target.encode()
            except UnicodeEncodeError:
                bad = True
            if bad:
                raise StoreError(
                    f"the symlink {inner!r} leads out of its folder, to {target!r}",
                    where=_top(path, relative),
                    hint="make it relative and inside, or copy the file (`cp -L`)",
                )
            node.links.append(Entry(item.name, "symlink", target=target))
        elif item.is_dir(follow_symlinks=False):
            below.append((item.path, inner))
        elif item.is_file(follow_symlinks=False):
            node.files.append(item.name)
            files.append(item.path)
        else:
            kind = kind_of(item.stat(follow_symlinks=False).st_mode)
            raise StoreError(
                f"{inner!r} is {kind}",
                where=_top(path, relative),
                hint="only files, folders and symlinks are kept",
            )
    for place, inner in below:
        node.folders.append(_scan(place, inner, depth + 1, files))
    return node


def _top(path: str, relative: str) -> str:
    """The folder in which a scan began."""
    return path[: len(path) - len(relative)].rstrip("/") if relative else path


def _encode(
    node: _Folder, facts: Iterator[FileFacts], put: Callable[[Digest, bytes], None] | None
) -> tuple[Digest, int]:
    # facts come in the order of the scan: the files of a folder, then those of its folders
    entries = list(node.links)
    total = 0
    for name in node.files:
        digest, size, executable = next(facts)
        entries.append(Entry(name, "file", digest, size, executable))
        total += size
    for folder in node.folders:
        inner, size = _encode(folder, facts, put)
        entries.append(Entry(folder.name, "dir", inner, size))
        total += size
    data = encode_tree(entries)
    made = hash_bytes(data)
    if put is not None:
        put(made, data)
    return made, total


def store_tree(cas: Cas, folder: str | os.PathLike[str]) -> TreeInfo:
    """Adopt all files of an action's output folder into the store, with its tree objects."""

    def adopt_all(files: list[str]) -> list[FileFacts]:
        out = []
        for path in files:
            executable = bool(os.lstat(path).st_mode & stat.S_IXUSR)
            found = hash_file(path)
            cas.adopt(path, found.digest, executable=executable)
            out.append(FileFacts(found.digest, found.size, executable))
        return out

    with explain_os_error("store an output", folder):
        return build_tree(folder, adopt_all, cas.put)


def digest_tree(folder: str | os.PathLike[str]) -> TreeInfo:
    """The digest of a folder, every byte read, nothing stored."""

    def hash_all(files: list[str]) -> list[FileFacts]:
        return [
            FileFacts(*hash_file(path)[:2], bool(os.lstat(path).st_mode & stat.S_IXUSR)) for path in files
        ]

    with explain_os_error("read a folder", folder):
        return build_tree(folder, hash_all)


# reading


def read_tree(cas: Cas, digest: str) -> list[Entry]:
    """The entries of a stored folder. Raises MissingBlob, or StoreError for an object that is no tree."""
    data = cas.read(digest)
    try:
        return parse_tree(data)
    except ValueError as error:
        raise StoreError(f"blob {digest!r} is no folder: {error}", where=cas.layout.text) from None


def walk_tree(cas: Cas, digest: str) -> Iterator[tuple[str, Entry]]:
    """(relative path, entry) of everything in a stored folder; a folder comes before what it holds.

    Raises as read_tree; a symlink that leaves the tree is a StoreError.
    """
    yield from _walk(cas, digest, "", 0)


def _walk(cas: Cas, digest: str, prefix: str, depth: int) -> Iterator[tuple[str, Entry]]:
    if depth > MAX_DEPTH:
        raise StoreError(f"blob {digest!r} nests more than {MAX_DEPTH} folders", where=cas.layout.text)
    for entry in read_tree(cas, digest):
        path = prefix + entry.name
        if entry.kind == "symlink" and escapes(entry.target, depth):
            raise StoreError(
                f"the symlink {path!r} leads out of its folder, to {entry.target!r}", where=digest
            )
        yield path, entry
        if entry.kind == "dir":
            yield from _walk(cas, entry.digest, path + "/", depth + 1)


def materialise_tree(cas: Cas, digest: str, dest: str | os.PathLike[str]) -> None:
    """Make dest, which must not exist, the stored folder: files linked from the store, folders 0755.

    Not atomic: give a path aside and rename it. Raises MissingBlob.
    """
    top = os.fspath(dest)
    with explain_os_error("write an output folder", top):
        try:
            os.mkdir(top)
        except FileNotFoundError:
            make_parent(top)
            os.mkdir(top)
        for relative, entry in walk_tree(cas, digest):
            path = f"{top}/{relative}"
            if entry.kind == "dir":
                os.mkdir(path)
            elif entry.kind == "symlink":
                os.symlink(entry.target, path)
            else:
                cas.link_out(entry.digest, path, executable=entry.executable)


def tree_present(cas: Cas, digest: str) -> bool:
    """Whether a stored folder is complete: tree objects are hashed, files looked at with one lstat each."""
    try:
        for _, entry in walk_tree(cas, digest):
            if entry.kind == "file" and not cas.has(entry.digest, entry.size):
                return False
    except StoreError:
        return False
    return True
