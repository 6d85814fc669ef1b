"""Markdown as GitHub shows it: tables, cells, the line that says where a page comes from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

NOTE = "<!-- Written by tools/make_reference.py from the code; change it there. -->"


def head(title: str, text: str) -> list[str]:
    """The first lines of a page."""
    return [f"# {title}", "", NOTE, "", text.strip(), ""]


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table and the blank line after it; nothing where there are no rows."""
    lines = [line(row) for row in rows]
    if not lines:
        return []
    return [line(columns), "|" + "---|" * len(columns), *lines, ""]


def line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell(text) for text in cells) + " |"


def cell(text: str) -> str:
    """Text that ends no cell and no row."""
    return plain(" ".join(text.split())).replace("|", "\\|")


def plain(text: str) -> str:
    """Text in which <x> is no HTML; what stands in backticks is safe already."""
    parts = text.split("`")
    parts[::2] = [part.replace("<", "&lt;") for part in parts[::2]]
    return "`".join(parts)


def code(text: str) -> str:
    return f"`{text}`"


def sentence(text: str) -> str:
    """With a capital letter, as a paragraph begins, and a full stop."""
    text = text.strip()
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?", ":")) else text + "."


def block(text: str, kind: str = "text") -> list[str]:
    return [f"```{kind}", *text.strip("\n").split("\n"), "```", ""]


def document(lines: Iterable[str]) -> str:
    return "\n".join(lines).rstrip("\n") + "\n"
