"""The language of `mxt query`: text to a tree, with errors that point at the place.

EXPR := TERM { OPERATOR TERM }             all operators bind alike, from left to right
TERM := WORD | $NAME | FUNCTION(ARGUMENT, ...) | set(WORD ...) | (EXPR) | let NAME = EXPR in EXPR
OPERATOR := + | union | - | except | ^ | intersect
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

from mxt.errors import UsageError, did_you_mean
from mxt.loading.excerpt import excerpt

OPERATORS = {"+": "+", "union": "+", "-": "-", "except": "-", "^": "^", "intersect": "^"}
DEEPEST = 100  # parentheses in parentheses


class Signature(NamedTuple):
    """What a function takes: e expression, w word, n number; the last `optional` may be left out."""

    kinds: str
    optional: int
    shown: str


FUNCTIONS: Mapping[str, Signature] = {
    "allpaths": Signature("ee", 0, "allpaths(FROM, TO)"),
    "attr": Signature("wwe", 0, "attr(NAME, REGEX, EXPR)"),
    "deps": Signature("en", 1, "deps(EXPR[, DEPTH])"),
    "filter": Signature("we", 0, "filter(REGEX, EXPR)"),
    "kind": Signature("we", 0, "kind(REGEX, EXPR)"),
    "labels": Signature("we", 0, "labels(ATTRIBUTE, EXPR)"),
    "rdeps": Signature("een", 1, "rdeps(UNIVERSE, EXPR[, DEPTH])"),
    "some": Signature("en", 1, "some(EXPR[, COUNT])"),
    "somepath": Signature("ee", 0, "somepath(FROM, TO)"),
    "tests": Signature("e", 0, "tests(EXPR)"),
}


class Token(NamedTuple):
    """kind: "word", "quoted", "variable", "end", or the sign itself. at: its place in the text."""

    kind: str
    text: str
    at: int


@dataclass(frozen=True)
class Word:
    """A target pattern, or a function's plain argument."""

    text: str
    at: int


@dataclass(frozen=True)
class Variable:
    """What `let` named."""

    name: str
    at: int


@dataclass(frozen=True)
class Set:
    """set(a b): several patterns as one."""

    words: tuple[Word, ...]


@dataclass(frozen=True)
class Chain:
    """first OPERATOR term OPERATOR term ..., from left to right: flat, as scripts write thousands."""

    first: Expression
    rest: tuple[tuple[str, Expression], ...]


@dataclass(frozen=True)
class Let:
    """let name = value in body."""

    name: str
    value: Expression
    body: Expression


@dataclass(frozen=True)
class Call:
    """arguments: Expression for kind e, Word for kind w, int for kind n."""

    function: str
    arguments: tuple[Expression | int, ...]
    at: int


Expression = Word | Variable | Set | Chain | Let | Call

# unquoted words as in Bazel; a '-' or '*' may stand inside one and not at its beginning
_BLANK = re.compile(r"\s*")
_TOKEN = re.compile(
    r"""(?:(?P<quoted>"[^"]*"|'[^']*')
    |(?P<variable>\$[A-Za-z_][A-Za-z0-9_]*)
    |(?P<word>[\w/@.:~\[\]%!#][\w/@.:~\[\]%!#*+=\-$]*?(?=[\s(),^'"]|[+=](?![\w/@.:~])|$))
    |(?P<sign>[(),+^=\-]))""",
    re.VERBOSE,
)


def fail(text: str, at: int, message: str, hint: str = "") -> NoReturn:
    """Raises UsageError that shows the expression with a caret."""
    line = text.count("\n", 0, at) + 1
    column = at - (text.rfind("\n", 0, at) + 1) + 1
    raise UsageError(f"query: {message}", hint=hint, excerpt=excerpt(text, line, column))


def parse(text: str) -> Expression:
    """The tree of an expression; raises UsageError where it is malformed."""
    return _Parser(text).whole()


def _tokens(text: str) -> list[Token]:
    found: list[Token] = []
    end = len(text.rstrip())
    at = 0
    while (begin := _BLANK.match(text, at).end()) < end:  # type: ignore[union-attr]
        match = _TOKEN.match(text, begin)
        if match is None:
            if text[begin] in "\"'":
                fail(text, begin, "this quote is never closed")
            fail(
                text, begin, f"'{text[begin]}' does not belong here", "quote words that hold other characters"
            )
        group = str(match.lastgroup)
        word = match[group]
        begin = match.start(group)
        if group == "quoted":
            found.append(Token("quoted", word[1:-1], begin))
        elif group == "variable":
            found.append(Token("variable", word[1:], begin))
        else:
            found.append(Token("word" if group == "word" else word, word, begin))
        at = match.end()
    return [*found, Token("end", "", end)]


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens(text)
        self._next = 0
        self._depth = 0

    def whole(self) -> Expression:
        if self._peek().kind == "end":
            raise UsageError(
                "query: the expression is empty", hint="write one, such as 'deps(//recipes:x)' or '//...'"
            )
        found = self._expression()
        token = self._peek()
        if token.kind == ")":
            self._fail(token, "this ')' closes nothing")
        if token.kind != "end":
            near = did_you_mean(token.text, [o for o in OPERATORS if o.isalpha()])
            self._fail(
                token, f"an operator is missing before '{token.text}'{near}", "operators: + - ^, or set(a b)"
            )
        return found

    def _expression(self) -> Expression:
        self._depth += 1
        if self._depth > DEEPEST:
            self._fail(self._peek(), f"more than {DEEPEST} parentheses lie in each other")
        first = self._term()
        rest: list[tuple[str, Expression]] = []
        while (token := self._peek()).kind != "quoted" and token.text in OPERATORS:
            self._take()
            rest.append((OPERATORS[token.text], self._term()))
        self._depth -= 1
        return Chain(first, tuple(rest)) if rest else first

    def _term(self) -> Expression:
        token = self._take()
        if token.kind == "(":
            inner = self._expression()
            self._expect(")", f"the '(' at column {token.at + 1} is never closed")
            return inner
        if token.kind == "variable":
            return Variable(token.text, token.at)
        if token.kind == "word" and self._peek().kind == "(":
            return self._set() if token.text == "set" else self._call(token)
        if token.kind == "word" and token.text == "let" and self._peek().kind == "word":
            return self._let()
        if token.kind == "word" and token.text in OPERATORS:
            self._fail(
                token, f"something is missing before '{token.text}'", f"quote a target: '\"{token.text}\"'"
            )
        if token.kind in ("word", "quoted"):
            return Word(token.text, token.at)
        what = "the expression ends where a target or a function is expected"
        if token.kind != "end":
            what = f"a target or a function is expected, not '{token.text}'"
        hint = "a pattern cannot begin with '-': write EXPR - PATTERN" if token.kind == "-" else ""
        return self._fail(token, what, hint)

    def _set(self) -> Expression:
        self._take()
        words: list[Word] = []
        while (token := self._take()).kind != ")":
            if token.kind not in ("word", "quoted"):
                self._fail(token, "set(...) holds words apart by spaces", "for expressions write (A + B)")
            words.append(Word(token.text, token.at))
        return Set(tuple(words))

    def _let(self) -> Expression:
        name = self._take()
        if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name.text):
            self._fail(name, f"'{name.text}' is no name for a variable")
        self._expect("=", f"'let {name.text}' needs '='")
        value = self._expression()
        token = self._take()
        if token.text != "in":
            self._fail(token, f"'let {name.text} = ...' needs 'in' and an expression")
        return Let(name.text, value, self._expression())

    def _call(self, name: Token) -> Expression:
        signature = FUNCTIONS.get(name.text)
        if signature is None:
            self._fail(
                name,
                f"unknown function '{name.text}'{did_you_mean(name.text, [*FUNCTIONS, 'set'])}",
                f"functions: {', '.join(FUNCTIONS)}",
            )
        self._take()
        arguments: list[Expression | int] = []
        for place, kind in enumerate(signature.kinds):
            if place:
                if self._peek().kind == ")" and place >= len(signature.kinds) - signature.optional:
                    break
                if self._peek().kind == "end":
                    break
                self._expect(",", f"{name.text} needs more: {signature.shown}")
            elif self._peek().kind == ")":
                self._fail(self._peek(), f"{name.text} needs more: {signature.shown}")
            arguments.append(self._argument(name.text, kind, signature))
        if self._peek().kind == ",":
            self._fail(self._peek(), f"{name.text} takes no more: {signature.shown}")
        self._expect(")", f"'{name.text}(' is never closed")
        return Call(name.text, tuple(arguments), name.at)

    def _argument(self, function: str, kind: str, signature: Signature) -> Expression | int:
        if kind == "e":
            return self._expression()
        token = self._take()
        if kind == "w":
            if token.kind not in ("word", "quoted"):
                self._fail(token, f"{function} takes a word here: {signature.shown}", "quote it: 'a b'")
            return Word(token.text, token.at)
        if not re.fullmatch("[0-9]{1,9}", token.text):
            self._fail(token, f"{function} takes a whole number here: {signature.shown}")
        return int(token.text)

    def _peek(self) -> Token:
        return self._tokens[self._next]

    def _take(self) -> Token:
        token = self._tokens[self._next]
        self._next = min(self._next + 1, len(self._tokens) - 1)
        return token

    def _expect(self, kind: str, problem: str) -> None:
        token = self._peek()
        if token.kind != kind:
            self._fail(token, problem)
        self._take()

    def _fail(self, token: Token, message: str, hint: str = "") -> NoReturn:
        fail(self._text, token.at, message, hint)
