"""A folder as a Merkle tree: its digest covers names, kinds, executable bits, sizes and contents.

A tree object is canonical JSON {"entries": [...]}, sorted by the bytes of the names, stored as a blob:

    {"kind": "file", "name", "digest", "size", "executable"}
    {"kind": "dir", "name", "digest", "size"}          digest of the nested object, bytes of all below it
    {"kind": "symlink", "name", "target"}              relative, staying inside the tree

Objects may come from strangers, so parsing is strict and no name or target can lead outside.
"""

# ruff: noqa: TRY004 - whatever is wrong with a stranger's bytes is one error, a ValueError
from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

from mxt.action.canonical import MAX_INTEGER, dump, load
from mxt.store.digest import Digest

# deeper than any real folder, shallower than the recursion limit
MAX_DEPTH = 200


class Entry(NamedTuple):
    """One name in a folder. digest, size: of a file or a nested folder. target: of a symlink."""

    name: str
    kind: str
    digest: str = ""
    size: int = 0
    executable: bool = False
    target: str = ""

    def form(self) -> dict[str, Any]:
        if self.kind == "file":
            return {
                "kind": "file",
                "name": self.name,
                "digest": self.digest,
                "size": self.size,
                "executable": self.executable,
            }
        if self.kind == "dir":
            return {"kind": "dir", "name": self.name, "digest": self.digest, "size": self.size}
        return {"kind": "symlink", "name": self.name, "target": self.target}


def encode_tree(entries: list[Entry]) -> bytes:
    """The tree object of these entries, in any order."""
    ordered = sorted(entries, key=lambda entry: entry.name.encode())
    return dump({"entries": [entry.form() for entry in ordered]})


def parse_tree(data: bytes) -> list[Entry]:
    """The entries of a tree object. Raises ValueError unless it is canonical, well-formed and harmless."""
    try:
        form = load(data)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(form, dict) or set(form) != {"entries"} or not isinstance(form["entries"], list):
        raise ValueError("not a tree object")
    entries = [_entry(item) for item in form["entries"]]
    names = [entry.name.encode() for entry in entries]
    if any(a >= b for a, b in pairwise(names)):
        raise ValueError("entries are not sorted, or a name comes twice")
    return entries


_FIELDS = {
    "file": {"kind", "name", "digest", "size", "executable"},
    "dir": {"kind", "name", "digest", "size"},
    "symlink": {"kind", "name", "target"},
}


def _entry(item: Any) -> Entry:
    if not isinstance(item, dict) or not isinstance(item.get("kind"), str):
        raise ValueError("an entry is not an object with a kind")
    kind = item["kind"]
    if set(item) != _FIELDS.get(kind):
        raise ValueError(f"an entry of kind {kind!r} has the wrong fields")
    name = _text(item["name"])
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise ValueError(f"unsafe name {name!r}")
    if kind == "symlink":
        return Entry(name, kind, target=_text(item["target"]))
    size = item["size"]
    if type(size) is not int or not 0 <= size <= MAX_INTEGER:
        raise ValueError(f"bad size of {name!r}")
    executable = item.get("executable", False)
    if type(executable) is not bool:
        raise ValueError(f"bad executable bit of {name!r}")
    return Entry(name, kind, Digest(_text(item["digest"])), size, executable)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("a field that must be text is not")
    value.encode()  # a lone surrogate has no UTF-8 form: UnicodeEncodeError is a ValueError
    return value


def escapes(target: str, depth: int) -> bool:
    """Whether a symlink's target may lead out of its tree. depth: folders between the root and the link.

    ".." may stand at the beginning only: after a name it could leave through another symlink.
    """
    if not target or target.startswith("/") or "\0" in target:
        return True
    parts = [part for part in target.split("/") if part not in ("", ".")]
    ups = 0
    while ups < len(parts) and parts[ups] == "..":
        ups += 1
    return ups > depth or ".." in parts[ups:]
