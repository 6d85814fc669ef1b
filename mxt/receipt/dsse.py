"""The DSSE envelope that holds a receipt, in exactly one encoding: any other byte is refused.

DSSE lets an encoder choose (spaces, key order, base64 alphabets); a signature would hold for all of
these. Here the file is the canonical JSON of its content, so that no byte of it can change unseen.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, NamedTuple

from mxt.action.canonical import dump
from mxt.errors import MxtError
from mxt.store.signing import OperatorKey, pae, verify_signature

PAYLOAD_TYPE = "application/vnd.in-toto+json"
SIGNATURE_BYTES = 64


class UnreadableError(MxtError):
    """The file is no receipt, or not in the one encoding that a receipt has."""

    exit_code = 2


class Envelope(NamedTuple):
    """payload: the statement's bytes. keyid: who claims to have signed. signature: 64 bytes, ed25519."""

    payload: bytes
    keyid: str
    signature: bytes


def seal(payload: bytes, key: OperatorKey) -> Envelope:
    """Sign a statement's bytes."""
    return Envelope(payload, key.keyid, key.sign(pae(PAYLOAD_TYPE, payload)))


def signature_holds(envelope: Envelope, public: bytes) -> bool:
    """Whether the owner of this raw public key signed the payload."""
    return verify_signature(public, envelope.signature, pae(PAYLOAD_TYPE, envelope.payload))


def encode(envelope: Envelope) -> bytes:
    """The bytes of the file: canonical JSON, without a line end."""
    return dump(
        {
            "payload": base64.b64encode(envelope.payload).decode(),
            "payloadType": PAYLOAD_TYPE,
            "signatures": [{"keyid": envelope.keyid, "sig": base64.b64encode(envelope.signature).decode()}],
        }
    )


def decode(data: bytes) -> Envelope:
    """The inverse of `encode`; raises UnreadableError for anything that encode would not have written."""
    form = parse_canonical(data, "the envelope")
    _require_keys(form, {"payload", "payloadType", "signatures"}, "the envelope")
    if form["payloadType"] != PAYLOAD_TYPE:
        raise UnreadableError(f"the envelope holds {form['payloadType']!r}, not {PAYLOAD_TYPE!r}")
    signatures = form["signatures"]
    if not isinstance(signatures, list) or len(signatures) != 1:
        raise UnreadableError("the envelope does not hold exactly one signature")
    _require_keys(signatures[0], {"keyid", "sig"}, "the envelope's signature")
    keyid = signatures[0]["keyid"]
    if not isinstance(keyid, str) or not keyid:
        raise UnreadableError("the envelope's keyid is not text")
    signature = decode_base64(signatures[0]["sig"], "the envelope's signature")
    if len(signature) != SIGNATURE_BYTES:
        raise UnreadableError(f"the signature has {len(signature)} bytes, not {SIGNATURE_BYTES}")
    return Envelope(decode_base64(form["payload"], "the envelope's payload"), keyid, signature)


def parse_canonical(data: bytes, what: str) -> Any:
    """JSON that must be canonical; raises UnreadableError saying where it first is not."""
    try:
        form = json.loads(data)
        again = dump(form)
    except RecursionError:
        raise UnreadableError(f"{what} is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise UnreadableError(f"{what} is not JSON: {error.msg.lower()} at byte {error.pos}") from None
    except ValueError as error:
        raise UnreadableError(f"{what} is not JSON in UTF-8: {error}") from None
    if again != data:
        at = next(
            (i for i, (a, b) in enumerate(zip(again, data, strict=False)) if a != b),
            min(len(again), len(data)),
        )
        raise UnreadableError(
            f"{what} is not in canonical form: it departs at byte {at}",
            hint="a receipt is never reformatted; get the file as it was written",
        )
    return form


def decode_base64(text: object, what: str) -> bytes:
    """Standard padded base64 in its one form; raises UnreadableError otherwise."""
    if not isinstance(text, str):
        raise UnreadableError(f"{what} is not text")
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise UnreadableError(f"{what} is not base64") from None
    if base64.b64encode(data).decode() != text:
        raise UnreadableError(f"{what} is not in base64's canonical form")
    return data


def _require_keys(form: object, keys: set[str], what: str) -> None:
    if not isinstance(form, dict):
        raise UnreadableError(f"{what} is not a JSON object")
    if missing := sorted(keys - form.keys()):
        raise UnreadableError(f"{what} lacks '{missing[0]}'")
    if extra := sorted(form.keys() - keys):
        raise UnreadableError(f"{what} has an unknown field '{extra[0]}'")
