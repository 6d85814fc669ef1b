"""What a verification found: every mismatch with both sides, and what a reader should know besides."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

VERIFIED = 0
MISMATCH = 1
UNREADABLE = 2


@dataclass(frozen=True)
class Mismatch:
    """kind: the sort of thing (signature, key, blob, ...). where: the place, a path or a path in the receipt.

    what: the fact, in a few words. expected: what the receipt states or implies. found: what is there.
    """

    kind: str
    where: str
    what: str
    expected: str
    found: str


@dataclass(frozen=True)
class Note:
    """Something that is no mismatch: a source that has changed since, a newer result."""

    where: str
    text: str


@dataclass(frozen=True)
class Signer:
    """keyid: fingerprint. public: base64. name: as the reader knows this key, "" where he does not."""

    keyid: str
    public: str
    name: str


@dataclass
class Result:
    """receipt: path. digest: BLAKE3 of the payload. files, bytes: what the target is made of.

    hashed_bytes: what was read for this.
    """

    receipt: str
    digest: str = ""
    target: str = ""
    signer: Signer | None = None
    started: str = ""
    finished: str = ""
    actions: int = 0
    files: int = 0
    bytes: int = 0
    hashed_bytes: int = 0
    wall_s: float = 0.0
    mismatches: list[Mismatch] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        return MISMATCH if self.mismatches else VERIFIED

    def mismatch(self, kind: str, where: str, what: str, expected: object, found: object) -> None:
        self.mismatches.append(Mismatch(kind, where, what, str(expected), str(found)))

    def note(self, where: str, text: str) -> None:
        self.notes.append(Note(where, text))

    def form(self) -> dict[str, Any]:
        """For --json: all fields, with "verified" and "exit_code"."""
        return {"version": 1, "verified": not self.mismatches, "exit_code": self.exit_code, **asdict(self)}
