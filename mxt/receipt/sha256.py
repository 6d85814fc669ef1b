"""SHA-256 of stored blobs, computed once: other people's tools do not know BLAKE3.

What is remembered is keyed by the BLAKE3 digest of the same bytes, so it cannot go stale. It lies in
the store's state/ and may be deleted at any time. `mxt verify` never reads it.
"""

from __future__ import annotations

import os
from types import TracebackType
from typing import Self

from mxt.errors import StoreError
from mxt.store.cas import Cas, MissingBlob
from mxt.store.database import Database
from mxt.store.digest import FileHash, hash_file

_SCHEMA = "CREATE TABLE IF NOT EXISTS sha256(digest TEXT PRIMARY KEY, sha256 TEXT NOT NULL)"


class Sha256Memory:
    """Digest -> SHA-256. Use as a context: what was learned is written at its end."""

    def __init__(self, cas: Cas) -> None:
        self._cas = cas
        self._database = Database(cas.layout.state / "sha256.sqlite", 1, _SCHEMA)
        self._known: dict[str, str] = {}
        self._learned: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._learned:
            self._database.write("INSERT OR REPLACE INTO sha256 VALUES (?, ?)", list(self._learned.items()))
        self._database.close()

    def of_blob(self, digest: str) -> str:
        """Of a blob in the store. Raises MissingBlob where it is gone or damaged."""
        if known := self._recall(digest):
            return known
        place = self._cas.locate(digest)
        if place is None or (found := hash_file(place, sha256=True)).digest != digest:
            raise MissingBlob(digest, self._cas.layout.text)
        return self._learn(found)

    def of_file(self, path: str | os.PathLike[str], digest: str) -> str:
        """Of a file that must have this digest. Raises StoreError where it has another."""
        if known := self._recall(digest):
            return known
        try:
            found = hash_file(path, sha256=True)
        except OSError as error:
            raise StoreError(
                f"cannot read a file that the receipt names: {(error.strerror or str(error)).lower()}",
                where=os.fspath(path),
                hint="build again",
            ) from None
        if found.digest != digest:
            raise StoreError("the file changed during the build", where=os.fspath(path), hint="build again")
        return self._learn(found)

    def note(self, digest: str, sha256: str) -> str:
        """Keep what the caller has computed from the very bytes of `digest`."""
        self._known[digest] = self._learned[digest] = sha256
        return sha256

    def _learn(self, found: FileHash) -> str:
        return self.note(found.digest, found.sha256)

    def _recall(self, digest: str) -> str | None:
        if digest not in self._known:
            rows = self._database.rows("SELECT sha256 FROM sha256 WHERE digest = ?", (digest,))
            if rows:
                self._known[digest] = rows[0][0]
        return self._known.get(digest)
