from __future__ import annotations

import base64
import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mxt.action.canonical import dump, load
from mxt.errors import UsageError
from mxt.store import (
    REALISATION_TYPE,
    RUN_TYPE,
    keyid_of,
    load_or_create_key,
    open_record,
    pae,
    sign_record,
    verify_signature,
)


def test_a_key_is_made_once_and_for_its_owner_only(operator_key: Path) -> None:
    made = load_or_create_key()
    assert stat.S_IMODE(operator_key.stat().st_mode) == 0o600
    again = load_or_create_key()
    assert (again.keyid, again.public) == (made.keyid, made.public)
    assert made.keyid == keyid_of(made.public)
    assert len(made.keyid) == 32
    assert verify_signature(made.public, again.sign(b"data"), b"data")
    assert not verify_signature(made.public, again.sign(b"data"), b"Data")
    assert os.listdir(operator_key.parent) == ["key"]


def test_any_ed25519_key_in_pem_form_will_do(operator_key: Path) -> None:
    made = load_or_create_key()
    text = operator_key.read_text()
    operator_key.write_text(text[text.index("-----BEGIN") :])
    assert load_or_create_key().keyid == made.keyid


def test_a_false_public_line_is_found_before_anything_is_signed(operator_key: Path) -> None:
    load_or_create_key()
    lines = operator_key.read_text().splitlines(keepends=True)
    lines[0] = "mxt operator, public key: " + base64.b64encode(bytes(32)).decode() + "\n"
    operator_key.write_text("".join(lines))
    with pytest.raises(UsageError, match="is not that of its private key"):
        load_or_create_key().sign(b"data")


@pytest.mark.parametrize(
    "text", ["", "rubbish", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"]
)
def test_a_malformed_key_says_what_to_do(operator_key: Path, text: str) -> None:
    operator_key.parent.mkdir()
    operator_key.write_text(text)
    operator_key.chmod(0o600)
    with pytest.raises(UsageError, match="not an unencrypted ed25519 key") as caught:
        load_or_create_key()
    assert str(operator_key) in str(caught.value)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o700 | 0o010])
def test_a_key_that_others_can_reach_is_refused(operator_key: Path, mode: int) -> None:
    load_or_create_key()
    operator_key.chmod(mode)
    with pytest.raises(UsageError, match="open to other users") as caught:
        load_or_create_key()
    assert f"chmod 600 {operator_key}" in str(caught.value)


def test_a_key_in_a_workspace_is_refused(operator_key: Path, tmp_path: Path) -> None:
    for inside in (tmp_path, operator_key.parent):
        with pytest.raises(UsageError, match="lies inside"):
            load_or_create_key(keep_out_of=[inside])
    (tmp_path / "way in").symlink_to(operator_key.parent)
    with pytest.raises(UsageError, match="lies inside"):
        load_or_create_key(keep_out_of=[tmp_path / "way in"])
    assert not operator_key.exists()
    load_or_create_key(keep_out_of=[tmp_path / "con"])  # a name that only begins alike


def test_the_default_place_follows_the_users_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MXT_KEY_FILE")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    assert load_or_create_key().path == tmp_path / "home" / ".config" / "mxt" / "key"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    assert load_or_create_key().path == tmp_path / "xdg" / "mxt" / "key"


def test_builds_that_start_together_agree_on_one_key(
    in_python: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    script = """
import os, sys
from mxt.store import load_or_create_key
for _ in range(4):
    if os.fork() == 0:
        os.write(1, f"{load_or_create_key().keyid} ".encode())
        os._exit(0)
for _ in range(4):
    os.wait()
"""
    keyids = in_python(script).stdout.split()
    assert len(keyids) == 4
    assert len(set(keyids)) == 1


def test_the_secret_is_not_shown(operator_key: Path) -> None:
    key = load_or_create_key()
    key.sign(b"")
    secret = operator_key.read_text().splitlines()[2]
    assert secret not in repr(key)
    assert secret not in str(key)


# records

PAYLOAD = {"version": 1, "key": "k", "outputs": {"a": {"size": 7}}}


def test_a_record_opens_and_verifies() -> None:
    key = load_or_create_key()
    data = sign_record(key, RUN_TYPE, PAYLOAD)
    record = open_record(data, RUN_TYPE)
    assert record.payload == PAYLOAD
    assert record.keyid == key.keyid
    assert record.verify(key.public)
    assert verify_signature(key.public, record.signature, pae(RUN_TYPE, dump(PAYLOAD)))
    assert pae("t", b"payload") == b"DSSEv1 1 t 7 payload"


def test_another_key_does_not_verify(operator_key: Path) -> None:
    data = sign_record(load_or_create_key(), RUN_TYPE, PAYLOAD)
    operator_key.unlink()
    assert not open_record(data, RUN_TYPE).verify(load_or_create_key().public)


@pytest.mark.parametrize(
    "change",
    [
        lambda form: form | {"more": 1},
        lambda form: {name: form[name] for name in form if name != "sig"},
        lambda form: form | {"payload": [1]},
        lambda form: form | {"payloadType": REALISATION_TYPE},
        lambda form: form | {"keyid": form["keyid"][:-1]},
        lambda form: form | {"keyid": form["keyid"].upper() + "X"},
        lambda form: form | {"keyid": 7},
        lambda form: form | {"sig": 7},
        lambda form: form | {"sig": form["sig"][:-4]},
        lambda form: form | {"sig": form["sig"].rstrip("=")},
        lambda form: form | {"sig": "\n" + form["sig"]},
        lambda form: [form],
    ],
)
def test_a_record_of_the_wrong_form_is_refused(change: Callable[[Any], Any]) -> None:
    form = load(sign_record(load_or_create_key(), RUN_TYPE, PAYLOAD))
    with pytest.raises(ValueError):
        open_record(dump(change(form)), RUN_TYPE)


def test_one_encoding_only() -> None:
    data = sign_record(load_or_create_key(), RUN_TYPE, PAYLOAD)
    for other in (
        data + b"\n",
        b" " + data,
        data.replace(b":7", b":7.0"),
        data.replace(b":7", b":07"),
        b"[" * 9999,
    ):
        with pytest.raises(ValueError):
            open_record(other, RUN_TYPE)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(payload=st.dictionaries(st.text(), json_values, max_size=4), data=st.data())
def test_no_changed_byte_goes_unseen(payload: dict[str, Any], data: st.DataObject) -> None:
    key = _shared_key()
    signed = sign_record(key, RUN_TYPE, payload)
    record = open_record(signed, RUN_TYPE)
    assert record.payload == payload
    assert record.verify(key.public)
    place = data.draw(st.integers(0, len(signed) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda value: value != signed[place]))
    changed = signed[:place] + bytes([byte]) + signed[place + 1 :]
    try:
        other = open_record(changed, RUN_TYPE)
    except ValueError:
        return
    assert not other.verify(key.public)


_keys: list[Any] = []


def _shared_key() -> Any:
    if not _keys:
        key = load_or_create_key()
        key.sign(b"")  # loaded now: the file belongs to the first test that asked
        _keys.append(key)
    return _keys[0]
