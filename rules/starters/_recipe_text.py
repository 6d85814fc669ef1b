"""Changes a recipe as text, so that its comments and its order stay."""

from __future__ import annotations

import re
from collections.abc import Iterator


def replace_field(text: str, field: str, value: str) -> str:
    """The recipe with the one line of `field` (dotted) saying `value`; a comment behind it stays.

    Raises KeyError where the recipe has no such line: a starter's recipe was changed and this was not.
    """
    lines = text.split("\n")
    for number, name in _fields(lines):
        if name == field:
            match = re.fullmatch(r"( *[\w-]+:) *([^#]*?)( *#.*)?", lines[number])
            assert match is not None
            lines[number] = f"{match[1]} {value}{match[3] or ''}"
            return "\n".join(lines)
    raise KeyError(field)


def add_field(text: str, section: str, line: str) -> str:
    """The recipe with `line` ("name: value") as the first of a section (dotted)."""
    lines = text.split("\n")
    for number, name in _fields(lines):
        if name == section:
            indent = len(lines[number]) - len(lines[number].lstrip()) + 2
            return "\n".join([*lines[: number + 1], " " * indent + line, *lines[number + 1 :]])
    raise KeyError(section)


def replace_section(text: str, section: str, body: str) -> str:
    """The recipe with a top-level section replaced by `body`, which ends with a line end."""
    match = re.search(rf"^{re.escape(section)}:\n(?:(?:[ #].*)?\n)*?(?=^\S|\Z)", text, re.MULTILINE)
    if match is None:
        raise KeyError(section)
    rest = text[match.end() :]
    return text[: match.start()] + body + ("\n" if rest else "") + rest


def _fields(lines: list[str]) -> Iterator[tuple[int, str]]:
    """(line number, dotted name) of every mapping key that stands on a line of its own."""
    above: list[tuple[int, str]] = []
    for number, line in enumerate(lines):
        match = re.match(r"( *)([\w-]+):(?: |$)", line)
        if match is None:
            continue
        indent = len(match[1])
        above = [(i, n) for i, n in above if i < indent]
        above.append((indent, match[2]))
        yield number, ".".join(n for _, n in above)
