"""Signed records: canonical JSON {"keyid", "payload", "payloadType", "sig"}, strict in every byte.

The signature is ed25519 over DSSE's encoding of (payloadType, canonical payload), as in receipts.
"""

# ruff: noqa: TRY004 - whatever is wrong with a stranger's bytes is one error, a ValueError
from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

from mxt.action.canonical import dump, load
from mxt.store.digest import Digest, hash_bytes
from mxt.store.signing import OperatorKey, keyid_of, pae, verify_signature

REALISATION_TYPE = "application/vnd.mxt.realisation.v1+json"
RUN_TYPE = "application/vnd.mxt.run.v1+json"

_FIELDS = {"keyid", "payload", "payloadType", "sig"}
_HEX = set("0123456789abcdef")


@dataclass(frozen=True)
class Record:
    """A parsed record; nothing is known about its signature until `verify`."""

    payload: dict[str, Any]
    payload_type: str
    keyid: str
    signature: bytes

    @property
    def digest(self) -> Digest:
        """BLAKE3 of the payload's canonical bytes: by this other records name it."""
        return hash_bytes(dump(self.payload))

    def verify(self, public: bytes) -> bool:
        """Whether the owner of this raw public key signed it; the key must be the one it names."""
        if keyid_of(public) != self.keyid:
            return False
        return verify_signature(public, self.signature, pae(self.payload_type, dump(self.payload)))


def sign_record(key: OperatorKey, payload_type: str, payload: dict[str, Any]) -> bytes:
    """The bytes of a signed record; payload must be canonical already (no floats)."""
    signature = key.sign(pae(payload_type, dump(payload)))
    return dump(
        {
            "keyid": key.keyid,
            "payload": payload,
            "payloadType": payload_type,
            "sig": base64.b64encode(signature).decode(),
        }
    )


def open_record(data: bytes, expected_type: str) -> Record:
    """Parse a record. Raises ValueError unless it is canonical, complete and of that type."""
    try:
        form = load(data)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(form, dict) or set(form) != _FIELDS:
        raise ValueError("not a signed record")
    payload, kind, keyid, sig = form["payload"], form["payloadType"], form["keyid"], form["sig"]
    if kind != expected_type:
        raise ValueError(f"a record of type {kind!r}, not {expected_type!r}")
    if not isinstance(payload, dict):
        raise ValueError("the payload is no object")
    if not isinstance(keyid, str) or len(keyid) != 32 or not _HEX.issuperset(keyid):
        raise ValueError("the keyid is no fingerprint")
    if not isinstance(sig, str):
        raise ValueError("the signature is no text")
    signature = base64.b64decode(sig, validate=True)
    if len(signature) != 64 or base64.b64encode(signature).decode() != sig:
        raise ValueError("the signature is not 64 bytes in canonical base64")
    return Record(payload, kind, keyid, signature)
