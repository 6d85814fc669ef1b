"""The canonical form: held against RFC 8785, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from mxt.action.canonical import MAX_INTEGER, canonical, dump, load, restore
from mxt.errors import MxtError

KEYS = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=8).filter(
    lambda k: not k.startswith("$")
)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-MAX_INTEGER + 1, MAX_INTEGER - 1)
    | TEXT
    | st.floats(allow_nan=False, allow_infinity=False)
)
VALUES = st.recursive(
    LEAVES, lambda v: st.lists(v, max_size=4) | st.dictionaries(KEYS, v, max_size=4), max_leaves=25
)


@given(VALUES)
def test_the_sorted_compact_dump_is_rfc_8785(value: Any) -> None:
    form = canonical(value)
    assert dump(form) == rfc8785.dumps(form)


@given(VALUES)
def test_it_can_be_read_back(value: Any) -> None:
    form = canonical(value)
    assert load(dump(form)) == form
    assert restore(form) == value


@given(st.dictionaries(KEYS, LEAVES, min_size=2, max_size=6))
def test_the_order_of_insertion_does_not_matter(value: dict[str, Any]) -> None:
    assert dump(canonical(dict(reversed(value.items())))) == dump(canonical(value))


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_is_its_shortest_text_and_no_integer(value: float) -> None:
    assert canonical(value) == {"$float": repr(value)}


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        2**53 + 1,
        -(2**53) - 1,
        {"ü": 1},
        {"$float": "1"},
        {1: 2},
        {"a": object()},
        b"x",
    ],
)
def test_what_has_no_canonical_form_is_refused(value: Any) -> None:
    with pytest.raises(MxtError):
        canonical(value)


@pytest.mark.parametrize(
    "data", [b'{"b":1,"a":2}', b'{"a": 1}', b"1.0", b'{"a":1,"a":1}', b'"\\u0041"', b"[1,]"]
)
def test_another_spelling_of_the_same_value_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        load(data)
