"""Labels are parsed as strictly as Bazel does, and printing is the inverse of parsing."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxt.errors import LoadError, MxtError, UsageError
from mxt.loading.label import Label


@pytest.mark.parametrize(
    ("text", "package", "label"),
    [
        ("//a/b:c", "", "//a/b:c"),
        ("//a/b", "", "//a/b:b"),
        ("//:c", "x", "//:c"),
        (":c", "a/b", "//a/b:c"),
        ("c", "a", "//a:c"),
        ("d/c.txt", "a", "//a:d/c.txt"),
        ("@mxt//rules:x.mxt", "a", "@mxt//rules:x.mxt"),
        ("@//a:b", "", "//a:b"),
        ("//a:b=c@d+e, f", "", "//a:b=c@d+e, f"),
        ("données.jsonl", "a", "//a:données.jsonl"),
    ],
)
def test_accepted(text: str, package: str, label: str) -> None:
    assert str(Label.parse(text, package)) == label


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        ("//", "names no target"),
        ("//a:", "name is empty"),
        ("/etc/passwd", "absolute path"),
        ("//a:/b", "absolute path"),
        ("//a:../b", "goes up with '..'"),
        ("../b", "goes up with '..'"),
        ("//../a:b", "goes up with '..'"),
        ("//a//b:c", "empty segment"),
        ("//a:b//c", "empty segment"),
        ("///a:b", "begins or ends with '/'"),
        ("//a/:b", "begins or ends with '/'"),
        ("//a:b/", "ends with '/'"),
        ("//./a:b", "'.' segment"),
        ("a:b", "names a package"),
        ("//a:b:c", "must not hold ':'"),
        ("//a:b\\c", "must not hold '\\'"),
        ("//a:b\nc", "must not hold '\\u000a'"),
        ("//a:b\0", "must not hold '\\u0000'"),
        ("//a:\u202eb", "must not hold '\\u202e'"),
        ("//a/...", "is a pattern"),
        ("@other//a:b", "unknown repository '@other'"),
        ("@mxt", "has no '//'"),
        ("//a:" + "x" * 300, "more than 255 bytes"),
    ],
)
def test_refused(text: str, says: str) -> None:
    with pytest.raises(LoadError) as caught:
        Label.parse(text, "pkg")
    assert says in caught.value.message


def test_the_caller_chooses_the_error_and_the_place() -> None:
    with pytest.raises(UsageError) as caught:
        Label.parse("..", where="here:1:2", error=UsageError)
    assert str(caught.value).startswith("here:1:2: label '..': goes up")


def test_messages_hold_no_control_characters() -> None:
    with pytest.raises(LoadError) as caught:
        Label.parse("//a:\x1b[31m\u202e")
    assert "\x1b" not in str(caught.value)
    assert "\u202e" not in str(caught.value)


@given(st.text(max_size=40), st.sampled_from(["", "a", "a/b"]))
def test_whatever_is_accepted_prints_as_itself(text: str, package: str) -> None:
    with contextlib.suppress(MxtError):
        label = Label.parse(text, package)
        _holds(label)


def _holds(label: Label) -> None:
    assert Label.parse(str(label), "elsewhere") == label
    assert ".." not in label.path.split("/")
    assert not label.path.startswith("/")


_segment = st.text(st.sampled_from("abcXYZ019_-.+@ é"), min_size=1, max_size=8).filter(
    lambda s: s not in (".", "..", "...")
)
_path = st.lists(_segment, min_size=1, max_size=4).map("/".join)


@given(st.one_of(st.just(""), _path), _path, st.sampled_from(["", "mxt"]))
def test_every_well_formed_label_round_trips(package: str, name: str, repo: str) -> None:
    label = Label(package, name, repo)
    assert Label.parse(str(label)) == label
