"""Where brackets of a Starlark file are deepest or never closed: found without parsing it.

A file nested too deeply ends its evaluator (the parser's stack overflows), so the place has to be
found by other means.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""\#[^\n]*
    | [rb]{0,2}\"\"\"(?:\\.|[^\\])*?\"\"\" | [rb]{0,2}'''(?:\\.|[^\\])*?'''
    | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*'
    | [\[\](){}]""",
    re.VERBOSE | re.DOTALL,
)
_PAIRS = {")": "(", "]": "[", "}": "{"}


@dataclass(frozen=True, slots=True)
class Nesting:
    """depth: of the deepest brackets; line, column (from 1): where the outermost of them opens.
    unclosed: "", or the innermost bracket left open, at unclosed_line, unclosed_column."""

    depth: int
    line: int
    column: int
    unclosed: str = ""
    unclosed_line: int = 0
    unclosed_column: int = 0


def nesting(source: str) -> Nesting:
    """Measure source; strings and comments do not count."""
    opened: list[int] = []
    deepest, at = 0, 0
    for token in _TOKEN.finditer(source):
        text = token.group()
        if text in ("(", "[", "{"):
            opened.append(token.start())
            if len(opened) > deepest:
                deepest, at = len(opened), opened[0]
        elif text in _PAIRS and opened and source[opened[-1]] == _PAIRS[text]:
            opened.pop()
    line, column = position(source, at)
    if not opened:
        return Nesting(deepest, line, column)
    return Nesting(deepest, line, column, source[opened[-1]], *position(source, opened[-1]))


def position(source: str, offset: int) -> tuple[int, int]:
    """Line and column, both from 1, of an offset in source."""
    return source.count("\n", 0, offset) + 1, offset - (source.rfind("\n", 0, offset) + 1) + 1
