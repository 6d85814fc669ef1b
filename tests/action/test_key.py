"""The action key: everything that may change a result is in it, nothing else is."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from mxt.action.action import Action, ActionId, Input, Need, Output, Refusal, SourceRef
from mxt.action.explain import compare
from mxt.action.key import InputDigest, action_key

ACTION = Action(
    id=ActionId("//p:t"),
    mnemonic="Train",
    entry="rules.train:train",
    implementation={"version": 1},
    inputs=(Input("data", "inputs/data/x", SourceRef("x")),),
    outputs=(Output("model", "model", "dir"),),
    params={"top": 3},
    config={"train.lr": 1e-4, "train.steps": None},
    toolchain="a" * 64,
    platform="b" * 64,
    environment={"OMP_NUM_THREADS": "1"},
)
DIGESTS = {"data": InputDigest("file", "c" * 64)}

KEYED: dict[str, Any] = {
    "entry": "rules.train:other",
    "implementation": {"version": 2},
    "inputs": (Input("data", "inputs/data/y", SourceRef("x")),),
    "outputs": (Output("model", "model", "file"),),
    "params": {"top": 3.0},
    "config": {"train.lr": 2e-4, "train.steps": None},
    "toolchain": None,
    "platform": "d" * 64,
    "environment": {},
}
UNKEYED: dict[str, Any] = {
    "id": ActionId("//elsewhere:t", "0001"),
    "mnemonic": "Other",
    "unkeyed": {"log_every": 5},
    "cpus": 7,
    "memory_mb": 9,
    "gpus": 1,
    "exclusive": True,
    "network": True,
    "progress": True,
    "accelerants": True,
    "accelerants_from": ActionId("//p:warm"),
    "passthrough": ("HF_TOKEN",),
    "needs": (Need(("HF_TOKEN",), "a token is needed"),),
    "refusal": Refusal("absent", "not implemented yet: this"),
    "test": True,
    "effect": True,
    "outputs_at": "elsewhere",
}


def test_every_field_of_an_action_is_either_keyed_or_not() -> None:
    assert {f.name for f in dataclasses.fields(Action)} == KEYED.keys() | UNKEYED.keys()


def test_a_keyed_field_changes_the_key_and_is_named_by_the_explanation() -> None:
    old = action_key(ACTION, DIGESTS)
    for name, value in KEYED.items():
        new = action_key(dataclasses.replace(ACTION, **{name: value}), DIGESTS)
        assert new.digest != old.digest, name
        changes = compare(json.loads(old.form), json.loads(new.form))
        assert changes, name
        assert all(c.field.split(".")[0] == name for c in changes), changes


def test_an_unkeyed_field_does_not() -> None:
    old = action_key(ACTION, DIGESTS)
    for name, value in UNKEYED.items():
        assert action_key(dataclasses.replace(ACTION, **{name: value}), DIGESTS) == old, name


def test_inputs_count_by_digest_kind_and_executable_bit() -> None:
    seen = {
        action_key(ACTION, {"data": InputDigest(*parts)}).digest
        for parts in [("file", "c" * 64), ("dir", "c" * 64), ("file", "c" * 64, True), ("file", "e" * 64)]
    }
    assert len(seen) == 4


def test_the_key_is_the_plain_digest_of_the_form() -> None:
    key = action_key(ACTION, DIGESTS)
    assert blake3(key.form).hexdigest() == key.digest


@given(
    st.dictionaries(
        st.from_regex(r"\A[a-z]{1,4}\Z"), st.integers(-9, 9) | st.floats(-9, 9) | st.text(max_size=3)
    ),
    st.dictionaries(
        st.from_regex(r"\A[a-z]{1,4}\Z"), st.integers(-9, 9) | st.floats(-9, 9) | st.text(max_size=3)
    ),
)
def test_keys_are_equal_only_for_equal_parameters(a: dict[str, Any], b: dict[str, Any]) -> None:
    def typed(d: dict[str, Any]) -> set[tuple[str, str, str]]:
        return {(k, type(v).__name__, repr(v)) for k, v in d.items()}

    one, two = (action_key(dataclasses.replace(ACTION, params=p), DIGESTS) for p in (a, b))
    assert (one == two) == (typed(a) == typed(b))
