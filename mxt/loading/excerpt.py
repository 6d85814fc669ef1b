"""The piece of a source file that an error shows: the line, and a caret below the column."""

from __future__ import annotations

WIDTH = 100


def excerpt(source: str, line: int, column: int) -> str:
    """Line `line` (from 1) of source with a caret under `column` (from 1); "" past the end.

    A long line is cut around the column, tabs are shown as one space so that the caret stands right.
    """
    lines = source.split("\n", line)
    if line < 1 or line > len(lines):
        return ""
    text = "".join(c if c.isprintable() else " " for c in lines[line - 1].rstrip("\r\n"))
    at = min(max(column, 1), len(text) + 1) - 1
    if len(text) > WIDTH:
        start = max(0, at - WIDTH // 2)
        cut = text[start : start + WIDTH]
        text = ("..." if start else "") + cut + ("..." if start + WIDTH < len(text) else "")
        at = at - start + (3 if start else 0)
    return f"    {text}\n    {' ' * at}^"
