"""The envelope has one encoding: no byte of a receipt can change, vanish or appear unseen."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from securesystemslib import dsse as others

from mxt.action.action import ActionId, SourceRef
from mxt.receipt.dsse import PAYLOAD_TYPE, Envelope, UnreadableError, decode, encode, signature_holds
from mxt.receipt.receipt import parse_statement
from mxt.store.signing import keyid_of, pae
from mxt.store.store import Store
from tests.receipt.conftest import World


@pytest.fixture
def small(tmp_path: Path) -> World:
    """A receipt of one action, so that every byte of it can be tried."""
    (tmp_path / "ws").mkdir()
    world = World(tmp_path / "ws", Store(tmp_path / "ws/cache", keep_key_out_of=[tmp_path / "ws"]).create())
    world.source("recipes/x.yaml", b"a: 1\n")
    world.source("toolchains/cpu.lock", b"{}")
    world.act(
        ActionId("//recipes:x.copy"),
        {"file": SourceRef("recipes/x.yaml")},
        {"copy": "copy.yaml"},
        lambda out: (out / "copy.yaml").write_bytes(b"a: 1\n"),  # type: ignore[arg-type,return-value]
    )
    world.write()
    assert world.verify().mismatches == []
    return world


def unseen(data: bytes) -> bool:
    """Whether a file passes as a receipt that its builder signed; asks what `verify` asks, and no more."""
    try:
        envelope = decode(data)
        public = parse_statement(envelope.payload).public
    except UnreadableError:
        return False
    return envelope.keyid == keyid_of(public) and signature_holds(envelope, public)


def test_no_byte_of_a_receipt_can_change_unseen(small: World) -> None:
    data = small.receipt.read_bytes()
    assert unseen(data)
    flipped = [
        i for i in range(len(data)) if unseen(data[:i] + bytes([data[i] ^ (1 << i % 8)]) + data[i + 1 :])
    ]
    deleted = [i for i in range(len(data)) if unseen(data[:i] + data[i + 1 :])]
    inserted = [
        i for i in range(len(data) + 1) if unseen(data[:i] + b' "A0,\n='[i % 7 : i % 7 + 1] + data[i:])
    ]
    assert (flipped, deleted, inserted) == ([], [], [])


def test_verify_refuses_what_the_cheaper_check_refuses(small: World) -> None:
    data = small.receipt.read_bytes()
    for i in range(0, len(data), 61):
        small.receipt.write_bytes(data[:i] + bytes([data[i] ^ 1]) + data[i + 1 :])
        try:
            code = small.verify().exit_code
        except UnreadableError as error:
            code = error.exit_code
        assert code in (1, 2), i


GOOD = encode(Envelope(b'{"a":1}', "ab" * 16, bytes(64)))
FORM = json.loads(GOOD)


def variant(**changes: object) -> bytes:
    return json.dumps({**FORM, **changes}, sort_keys=True, separators=(",", ":")).encode()


SIGNATURE = FORM["signatures"][0]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "not JSON"),
        (b"[]", "not a JSON object"),
        (GOOD + b"\n", "canonical form"),
        (json.dumps(FORM).encode(), "canonical form"),
        (json.dumps(dict(reversed(FORM.items())), separators=(",", ":")).encode(), "canonical form"),
        (GOOD[:-1] + b',"payload":"e30="}', "canonical form"),
        (GOOD.replace(b"payloadType", b"payloadTyp\\u0065"), "canonical form"),
        (b"\xef\xbb\xbf" + GOOD, "canonical form"),
        (GOOD.decode().encode("utf-16"), "canonical form"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"payload":"\\ud800"}', "UTF-8"),
        (b'{"payload":NaN}', "UTF-8"),
        (variant(extra=1), "unknown field 'extra'"),
        (variant(payloadType="text/plain"), "'text/plain'"),
        (variant(payload="eyJhIjoxfR=="), "base64's canonical form"),
        (variant(payload="eyJhIjoxfQ"), "not base64"),
        (variant(payload="eyJh IjoxfQ=="), "not base64"),
        (variant(payload="_-__"), "not base64"),
        (variant(payload=1), "not text"),
        (variant(signatures=[]), "exactly one signature"),
        (variant(signatures=[SIGNATURE, SIGNATURE]), "exactly one signature"),
        (variant(signatures=[{**SIGNATURE, "cert": ""}]), "unknown field 'cert'"),
        (variant(signatures=[{"sig": SIGNATURE["sig"]}]), "lacks 'keyid'"),
        (variant(signatures=[{**SIGNATURE, "sig": base64.b64encode(bytes(63)).decode()}]), "63 bytes"),
        (variant(signatures=[{**SIGNATURE, "keyid": ""}]), "keyid"),
    ],
)
def test_every_other_encoding_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(UnreadableError, match=said.replace("(", r"\(")):
        decode(data)


@given(st.binary(), st.text("0123456789abcdef", min_size=1), st.binary(min_size=64, max_size=64))
def test_decode_is_the_inverse_of_encode(payload: bytes, keyid: str, signature: bytes) -> None:
    envelope = Envelope(payload, keyid, signature)
    assert decode(encode(envelope)) == envelope


@given(st.binary())
def test_what_is_signed_is_what_others_sign(payload: bytes) -> None:
    assert pae(PAYLOAD_TYPE, payload) == others.Envelope(payload, PAYLOAD_TYPE, {}).pae()
