"""Whose signatures a reader believes: his own key, and those he lists as `name:base64`, as Nix does."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from os import PathLike
from pathlib import Path

from mxt.errors import UsageError
from mxt.store.signing import key_path, keyid_of, load_or_create_key

OWN = "you"


class TrustedKeys:
    """Raw public keys and the names that the reader gave them."""

    def __init__(self, keys: Mapping[bytes, str]) -> None:
        self._names = dict(keys)
        self._by_id = {keyid_of(public): public for public in keys}

    def name(self, public: bytes) -> str:
        """The reader's name for a key; "" for a stranger's."""
        return self._names.get(public, "")

    def by_id(self, keyid: str) -> bytes | None:
        """The trusted public key with this fingerprint."""
        return self._by_id.get(keyid)

    def describe(self) -> str:
        """All of them in words."""
        return ", ".join(f"{name} ({keyid_of(public)})" for public, name in self._names.items()) or "none"


def load_trusted_keys(path: str | PathLike[str] | None = None) -> TrustedKeys:
    """The operator's own key, if he has one, and those in the file at path. Makes no key.

    A line is `name:base64` of 32 bytes; empty lines and those that begin with "#" are passed over.
    Raises UsageError with file and line.
    """
    keys: dict[bytes, str] = {}
    if key_path().exists():
        keys[load_or_create_key().public] = OWN
    if path is not None:
        for public, name in _read(Path(path)):
            keys.setdefault(public, name)
    return TrustedKeys(keys)


def _read(path: Path) -> list[tuple[bytes, str]]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text in UTF-8"
        raise UsageError(f"cannot read the trusted keys: {reason}", where=str(path)) from None
    found = []
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        name, colon, encoded = text.partition(":")
        try:
            public = base64.b64decode(encoded.strip(), validate=True)
        except (binascii.Error, ValueError):
            public = b""
        if not colon or not name.strip() or len(public) != 32:
            raise UsageError(
                "a trusted key must be written name:base64, with 32 bytes",
                where=f"{path}:{number}",
                hint="the operator finds it in the first line of the key file",
            )
        found.append((public, name.strip()))
    return found
