"""The language of queries: what parses to what, and every error with its caret."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxt.errors import UsageError
from mxt.query.expression import FUNCTIONS, Call, Chain, Let, Set, Variable, Word, parse


def words(tree: object) -> object:
    """A tree as nested tuples, without places."""
    if isinstance(tree, Word):
        return tree.text
    if isinstance(tree, Variable):
        return f"${tree.name}"
    if isinstance(tree, Set):
        return ("set", *(w.text for w in tree.words))
    if isinstance(tree, Let):
        return ("let", tree.name, words(tree.value), words(tree.body))
    if isinstance(tree, Chain):
        return (words(tree.first), *((op, words(term)) for op, term in tree.rest))
    if isinstance(tree, Call):
        return (tree.function, *(a if isinstance(a, int) else words(a) for a in tree.arguments))
    raise AssertionError(tree)


PARSED = [
    ("//a:b", "//a:b"),
    ("'//a b:c'", "//a b:c"),
    ('"union"', "union"),
    ("//a:b-c", "//a:b-c"),
    ("//a:b - c", ("//a:b", ("-", "c"))),
    ("a + b - c ^ d", ("a", ("+", "b"), ("-", "c"), ("^", "d"))),
    ("a union b except c intersect d", ("a", ("+", "b"), ("-", "c"), ("^", "d"))),
    ("a + (b - c)", ("a", ("+", ("b", ("-", "c"))))),
    ("deps(//a:b)", ("deps", "//a:b")),
    ("deps(a+b, 3)", ("deps", "a+b", 3)),
    ("deps((a)+(b), 3)", ("deps", ("a", ("+", "b")), 3)),
    ("rdeps(//..., :x, 1)", ("rdeps", "//...", ":x", 1)),
    ("kind('source file', //p/...:*)", ("kind", "source file", "//p/...:*")),
    ("attr(tags, '[\\[ ]big', x)", ("attr", "tags", "[\\[ ]big", "x")),
    ("set(a b 'c d')", ("set", "a", "b", "c d")),
    ("set()", ("set",)),
    ("let v = deps(a) in $v ^ b", ("let", "v", ("deps", "a"), ("$v", ("^", "b")))),
    ("let", "let"),
    ("deps", "deps"),
    (" somepath( a ,\n b ) ", ("somepath", "a", "b")),
]


@pytest.mark.parametrize(("text", "tree"), PARSED)
def test_parses(text: str, tree: object) -> None:
    assert words(parse(text)) == tree


ERRORS = [
    ("", "the expression is empty", None),
    ("deep(a)", "unknown function 'deep', did you mean 'deps'?", 0),
    ("a unoin b", "an operator is missing before 'unoin', did you mean 'union'?", 2),
    ("deps(a", "'deps(' is never closed", 6),
    ("(a", "the '(' at column 1 is never closed", 2),
    ("deps(a))", "this ')' closes nothing", 7),
    ("a +", "the expression ends where a target or a function is expected", 3),
    ("+ a", "a target or a function is expected, not '+'", 0),
    ("union b", "something is missing before 'union'", 0),
    ("deps(a, b)", "deps takes a whole number here: deps(EXPR[, DEPTH])", 8),
    ("deps(a, 1, 2)", "deps takes no more: deps(EXPR[, DEPTH])", 9),
    ("kind(a)", "kind needs more: kind(REGEX, EXPR)", 6),
    ("tests()", "tests needs more: tests(EXPR)", 6),
    ("kind((a), b)", "kind takes a word here: kind(REGEX, EXPR)", 5),
    ("set(a (b))", "set(...) holds words apart by spaces", 6),
    ("let v 3", "'let v' needs '='", 6),
    ("let v = 3 b", "'let v = ...' needs 'in' and an expression", 10),
    ("'abc", "this quote is never closed", 0),
    ("a + {b}", "'{' does not belong here", 4),
    ("(" * 150 + "a" + ")" * 150, "more than 100 parentheses lie in each other", 100),
]


@pytest.mark.parametrize(("text", "message", "at"), ERRORS)
def test_errors_point_at_the_place(text: str, message: str, at: int | None) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert caught.value.message == f"query: {message}"
    if at is not None and len(text) <= 100:
        assert caught.value.excerpt == f"    {text}\n    {' ' * at}^"


def test_an_error_on_a_later_line_shows_that_line() -> None:
    with pytest.raises(UsageError) as caught:
        parse("deps(\n  a,\n  b)")
    assert caught.value.excerpt == "      b)\n      ^"


@given(st.text("ab/:.()+-^,'\" $=\n1" + "é") | st.text())
def test_any_text_parses_or_is_a_usage_error(text: str) -> None:
    with contextlib.suppress(UsageError):
        parse(text)


def test_long_chains_and_every_function() -> None:
    tree = parse(" + ".join(f"//p:t{i}" for i in range(20_000)))
    assert isinstance(tree, Chain)
    assert len(tree.rest) == 19_999
    for name, signature in FUNCTIONS.items():
        assert signature.shown.startswith(f"{name}(")
        arguments = ", ".join("1" if kind == "n" else "x" for kind in signature.kinds)
        assert isinstance(parse(f"{name}({arguments})"), Call)
