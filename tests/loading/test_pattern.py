"""Target patterns mean what Bazel means by them, in every folder of the workspace."""

from __future__ import annotations

import pytest

from mxt.errors import UsageError
from mxt.loading.label import Label
from mxt.loading.pattern import Kind, Pattern, parse_pattern
from tests.loading.conftest import Space


@pytest.fixture
def tree(space: Space) -> Space:
    space.write("a/MXTBUILD")
    space.write("a/b/MXTBUILD")
    space.write("a/plain/file.txt")
    return space


@pytest.mark.parametrize(
    ("text", "cwd", "kind", "package", "name"),
    [
        ("//...", "a", Kind.RECURSIVE, "", ""),
        ("//a/...", "", Kind.RECURSIVE, "a", ""),
        ("//a/...:all", "", Kind.RECURSIVE, "a", ""),
        ("...", "a", Kind.RECURSIVE, "a", ""),
        ("b/...", "a", Kind.RECURSIVE, "a/b", ""),
        ("//a:all", "", Kind.PACKAGE, "a", ""),
        ("//a:*", "", Kind.PACKAGE, "a", ""),
        (":all", "a", Kind.PACKAGE, "a", ""),
        (":all", "a/plain", Kind.PACKAGE, "a", ""),
        ("b:all", "a", Kind.PACKAGE, "a/b", ""),
        ("//a", "", Kind.TARGET, "a", "a"),
        ("//a:x", "", Kind.TARGET, "a", "x"),
        ("//:x", "a", Kind.TARGET, "", "x"),
        (":x", "a/b", Kind.TARGET, "a/b", "x"),
        ("x", "a", Kind.TARGET, "a", "x"),
        ("x", "a/plain", Kind.TARGET, "a", "plain/x"),
        ("a", "", Kind.TARGET, "a", "a"),
        ("b", "a", Kind.TARGET, "a/b", "b"),
        ("a/plain/file.txt", "", Kind.TARGET, "a", "plain/file.txt"),
        ("@//a:x", "", Kind.TARGET, "a", "x"),
    ],
)
def test_meaning(tree: Space, text: str, cwd: str, kind: Kind, package: str, name: str) -> None:
    assert parse_pattern(text, tree.workspace, tree.root / cwd) == Pattern(kind, package, name, False, text)


def test_negative(tree: Space) -> None:
    pattern = parse_pattern("-//a:x", tree.workspace, tree.root)
    assert pattern.negative
    assert pattern.matches(Label("a", "x"))
    assert not pattern.matches(Label("a", "y"))


def test_matching() -> None:
    under = Pattern(Kind.RECURSIVE, "a")
    assert under.matches(Label("a", "x"))
    assert under.matches(Label("a/b", "x"))
    assert not under.matches(Label("ab", "x"))
    assert not under.matches(Label("a", "x", "mxt"))
    assert Pattern(Kind.RECURSIVE, "").matches(Label("z", "x"))
    assert not Pattern(Kind.PACKAGE, "a").matches(Label("a/b", "x"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-",
        "/abs",
        "../x",
        "//a/../b:c",
        "//a/...:x",
        "@mxt//rules:x",
        "//",
        "//a:b:c",
        "//a:\n",
        "a//b:c",
    ],
)
def test_refused(tree: Space, text: str) -> None:
    with pytest.raises(UsageError):
        parse_pattern(text, tree.workspace, tree.root / "a")
