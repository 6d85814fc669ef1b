"""Recipe YAML: exactly the core types of 1.2, and every refusal with its place."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxt.errors import LoadError
from mxt.loading.recipe_yaml import MAX_DEPTH, parse_yaml


def value(text: str) -> object:
    return parse_yaml(text.encode(), "r.yaml").value["x"]  # type: ignore[no-any-return]


def parsed(data: bytes) -> object:
    try:
        return parse_yaml(data, "r.yaml").value
    except LoadError as problem:
        return problem


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1e-4", 1e-4), ("1E5", 1e5), ("2.", 2.0), (".5", 0.5), ("-1.5e+3", -1500.0), ("1.0", 1.0),
        ("3", 3), ("-3", -3), ("+3", 3), ("010", 10), ("0o17", 15), ("0x1F", 31), ("9007199254740992", 2**53),
        ("true", True), ("False", False), ("TRUE", True), ("~", None), ("null", None), ("", None),
        ("Null", None),
        ("yes", "yes"), ("no", "no"), ("on", "on"), ("Off", "Off"), ("y", "y"), ("1_000", "1_000"),
        ("12:30:45", "12:30:45"), ("2026-01-01", "2026-01-01"), ("0b1", "0b1"),
        ("017x", "017x"), ("e5", "e5"),
        ('"1"', "1"), ("'true'", "true"), ('""', ""), ("[1, 1.0, a]", [1, 1.0, "a"]), ("{a: 1}", {"a": 1}),
        ("|\n  a\n  b\n", "a\nb\n"), (">-\n  a\n  b\n", "a b"), ("nUll", "nUll"), ("0o8", "0o8"), (".", "."),
    ],
)  # fmt: skip
def test_types(text: str, expected: object) -> None:
    found = value(f"x: {text}")
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("text", "place", "says"),
    [
        ("a: 1\nb: 2\na: 3\n", "3:1", "duplicate key 'a', first given on line 1"),
        ("a: {b: 1, b: 2}", "1:11", "duplicate key 'b'"),
        ("a: &x 1\n", "1:4", "anchors"),
        ("a: *x\n", "1:4", "aliases"),
        ("a: !!int 3\n", "1:4", "tags"),
        ("a: !x 3\n", "1:4", "tags"),
        ("<<: {a: 1}\n", "1:1", "merge keys"),
        ("a: 1\n---\nb: 2\n", "2:1", "a second document"),
        ("%YAML 1.1\n---\na: 1\n", "1:1", "directives"),
        ("a: .inf\n", "1:4", "not a finite number"),
        ("a: -.Inf\n", "1:4", "not a finite number"),
        ("a: [1, .nan]\n", "1:8", "not a finite number"),
        ("a: 1e999\n", "1:4", "too large for a float"),
        ("a: 9007199254740993\n", "1:4", "beyond 2^53"),
        ("a: -9007199254740993\n", "1:4", "beyond 2^53"),
        ("a: " + "9" * 100_000, "1:4", "beyond 2^53"),
        ("a: 0x" + "f" * 30, "1:4", "beyond 2^53"),
        ("1: x\n", "1:1", "the key '1' must be text"),
        ("true: x\n", "1:1", "must be text"),
        ("? [a]\n: 1\n", "1:3", "a key must be text"),
        ("a:\n\t- 1\n", "2:1", "not valid YAML"),
        ("a: 1\n b: 2\n", "2:3", "':' begins a value here"),
        ("a: [1, 2\nb: 3\n", "2:2", "not valid YAML"),
        ("a: [1, 2\n", "1:4", "a flow sequence never ends"),
        ('a: "x\n', "1:4", "a quoted scalar never ends"),
        ("a: b\0c", "1:5", "U+0000"),
        ("a: 1\rb: 2", "1:5", "U+000D"),
        ("é: x\u2028y", "1:5", "U+2028"),
        ("- " * (MAX_DEPTH + 10), "1:129", "nested more than 64 deep"),
        ("[" * 10**5, "1:65", "nested more than 64 deep"),
        ("a: &a [x]\nb: &b [*a,*a]\n", "1:4", "anchors"),
    ],
)
def test_refused_with_its_place(text: str, place: str, says: str) -> None:
    with pytest.raises(LoadError) as caught:
        parse_yaml(text.encode(), "r.yaml")
    assert caught.value.where == f"r.yaml:{place}"
    assert says in caught.value.message


def test_bytes() -> None:
    with pytest.raises(LoadError, match=r"is not UTF-8") as caught:
        parse_yaml(b"a: 1\nb: \xff", "r.yaml")
    assert caught.value.where == "r.yaml:2:4"
    with pytest.raises(LoadError, match=r"larger than 1 MiB"):
        parse_yaml(b"#" * (1 << 20) + b"#", "r.yaml")
    assert parse_yaml(b"\xef\xbb\xbfa: 1\r\nb: 2\r\n", "r.yaml").value == {"a": 1, "b": 2}
    assert parse_yaml(b"# nothing\n", "r.yaml").value is None


def test_positions_of_keys_and_values() -> None:
    document = parse_yaml(b"a:\n  b: 1\n  c:\n    - x\n    - {d: 2}\n", "r.yaml")
    assert document.keys[("a",)] == (1, 1)
    assert document.keys[("a", "c")] == (3, 3)
    assert document.values[("a", "b")] == (2, 6)
    assert document.values[("a", "c", 0)] == (4, 7)
    assert document.keys[("a", "c", 1, "d")] == (5, 8)
    assert document.values[("a", "c", 1, "d")] == (5, 11)


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(LoadError) as caught:
        parse_yaml(b"a: .inf\nb: &x 1\nc: 1\nc: 2\n", "r.yaml")
    assert str(caught.value) == (
        "r.yaml:1:4: .inf is not a finite number\n"
        "    a: .inf\n"
        "       ^\n"
        "  hint: leave the key out, or give a number\n"
        "r.yaml:2:4: anchors (&x) are not supported\n"
        "    b: &x 1\n"
        "       ^\n"
        "  hint: write values out where they are used\n"
        "r.yaml:4:1: duplicate key 'c', first given on line 3\n"
        "    c: 2\n"
        "    ^\n"
        "  hint: keep one of them"
    )


@pytest.mark.parametrize(
    "noise", ["? ", "&a ", "!", "a: ", "{", '"', "- - ", "|\n", "[{", ",", "'", "#", "%"]
)
def test_noise_ends_soon_and_well(noise: str) -> None:
    outcome = parsed((noise * 200_000)[: 1 << 19].encode())
    assert not isinstance(outcome, LoadError) or len(str(outcome)) < 3000


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_are_exact(number: float) -> None:
    text = repr(number)
    found = value(f"x: {text}")
    assert isinstance(found, float)
    assert found == number
    assert math.copysign(1, found) == math.copysign(1, number)


@given(st.integers(-(2**53), 2**53))
def test_integers_are_exact(number: int) -> None:
    found = value(f"x: {number}")
    assert found == number
    assert type(found) is int


@given(st.text(max_size=60))
def test_quoted_text_is_text(text: str) -> None:
    quoted = json.dumps(text)  # a JSON string is a YAML one, but for lone surrogates
    if "\\ud" in quoted.lower():
        return
    assert value(f"x: {quoted}") == text


@given(st.binary(max_size=200))
def test_any_bytes_give_a_value_or_a_load_error(data: bytes) -> None:
    outcome = parsed(data)
    if isinstance(outcome, LoadError):
        assert outcome.where.startswith("r.yaml")
    else:
        json.dumps(outcome, allow_nan=False)
