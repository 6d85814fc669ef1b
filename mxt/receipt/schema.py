"""Walks parsed JSON that may come from a stranger: every access is checked and knows its place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from mxt.action.canonical import MAX_INTEGER
from mxt.receipt.dsse import UnreadableError

_HEX = set("0123456789abcdef")


class MalformedError(UnreadableError):
    """A statement that is not what a receipt of mxt states; `where` is the JSON path."""


class Node(NamedTuple):
    """A value with its JSON path."""

    value: Any
    path: str

    def fields(self, required: str, optional: str = "") -> dict[str, Node]:
        """The fields of an object that has exactly the named ones. required, optional: space-separated."""
        if not isinstance(self.value, dict):
            raise self.wrong("an object")
        wanted = set(required.split())
        for name in sorted(wanted - self.value.keys()):
            raise MalformedError(f"field '{name}' is missing", where=self.path)
        for name in sorted(self.value.keys() - wanted - set(optional.split())):
            raise MalformedError(f"unknown field '{name}'", where=self.path)
        return {name: Node(item, self._below(name)) for name, item in self.value.items()}

    def mapping(self) -> dict[str, Node]:
        """An object with keys of any name."""
        if not isinstance(self.value, dict):
            raise self.wrong("an object")
        return {name: Node(item, self._below(name)) for name, item in self.value.items()}

    def items(self) -> Iterator[Node]:
        if not isinstance(self.value, list):
            raise self.wrong("a list")
        return (Node(item, f"{self.path}[{i}]") for i, item in enumerate(self.value))

    def text(self) -> str:
        if not isinstance(self.value, str):
            raise self.wrong("text")
        return self.value

    def exactly(self, text: str) -> str:
        if self.value != text:
            raise self.wrong(repr(text))
        return text

    def number(self) -> int:
        if type(self.value) is not int or not 0 <= self.value <= MAX_INTEGER:
            raise self.wrong("a count")
        return self.value

    def hex64(self) -> str:
        if not isinstance(self.value, str) or len(self.value) != 64 or not _HEX.issuperset(self.value):
            raise self.wrong("64 hex characters")
        return self.value

    def digests(self) -> tuple[str, str]:
        """(blake3, sha256) of a digest set that has both."""
        found = self.fields("blake3 sha256")
        return found["blake3"].hex64(), found["sha256"].hex64()

    def wrong(self, wanted: str) -> MalformedError:
        shown = repr(self.value)
        return MalformedError(
            f"must be {wanted}, not {shown if len(shown) <= 60 else shown[:57] + '...'}", where=self.path
        )

    def _below(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name


def refuse_floats(value: Any, path: str = "") -> None:
    """Raises MalformedError for a float or an integer beyond 2^53: these have no one form in JSON."""
    if isinstance(value, float) or (type(value) is int and abs(value) > MAX_INTEGER):
        raise MalformedError(f"the number {value!r} has no canonical form", where=path)
    if isinstance(value, dict):
        for name, item in value.items():
            refuse_floats(item, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for i, item in enumerate(value):
            refuse_floats(item, f"{path}[{i}]")
