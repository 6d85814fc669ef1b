"""Changes one argument of a call in an MXTBUILD: comments and layout stay as they are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+|\\\n)
    |(?P<comment>\#[^\n]*)
    |(?P<text>[rb]{0,2}(?:\"{3}(?:[^\\]|\\.)*?\"{3}|'{3}(?:[^\\]|\\.)*?'{3}|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'))
    |(?P<name>[A-Za-z_]\w*)
    |(?P<other>==|.)""",
    re.VERBOSE | re.DOTALL,
)


class UnplacedError(Exception):
    """The argument is not written at the call as a plain string."""


class _Token(NamedTuple):
    kind: str
    text: str
    start: int
    end: int


def with_argument(source: str, line: int, column: int, name: str, value: str, *, after: str) -> str:
    """The source with name = "value" in the call at a place; behind the argument `after` if it is not there.

    Raises UnplacedError where the call, or the string, is not written there.
    """
    arguments = dict(_arguments(source, line, column))
    if name in arguments:
        token = arguments[name]
        if token is None:
            raise UnplacedError(f"'{name}' is no plain string there")
        quote = token.text[-1]
        return f"{source[: token.start]}{quote}{value}{quote}{source[token.end :]}"
    token = arguments.get(after)
    if token is None:
        raise UnplacedError(f"neither '{name}' nor '{after}' is a plain string there")
    begins = source.rfind("\n", 0, token.start) + 1
    indent = source[begins : token.start].partition(after)[0]
    joint = f",\n{indent}" if not indent.strip() else ", "
    return f'{source[: token.end]}{joint}{name} = "{value}"{source[token.end :]}'


def _arguments(source: str, line: int, column: int) -> Iterator[tuple[str, _Token | None]]:
    """The call's arguments by name; the string that each is, None for anything else."""
    lines = source.splitlines(keepends=True)
    if not 1 <= line <= len(lines):
        raise UnplacedError("the file has changed")
    tokens = [
        t
        for t in _tokens(source, sum(map(len, lines[: line - 1])) + column - 1)
        if t.kind not in ("space", "comment")
    ]
    if [t.text for t in tokens[1:2]] != ["("]:
        raise UnplacedError("the call stands in a macro")
    depth = 0
    for number, token in enumerate(tokens):
        if token.kind == "other":
            depth += (token.text in "([{") - (token.text in ")]}")
            if depth == 0:
                return
        if depth == 1 and token.kind == "name" and tokens[number - 1].text in ("(", ","):
            following = tokens[number + 1 : number + 4]
            if len(following) == 3 and following[0].text == "=":
                plain = following[1].kind == "text" and following[2].text in (",", ")")
                yield token.text, following[1] if plain else None
    raise UnplacedError("the call does not end")


def _tokens(source: str, start: int) -> Iterator[_Token]:
    for match in _TOKEN.finditer(source, start):
        yield _Token(str(match.lastgroup), match.group(), match.start(), match.end())
