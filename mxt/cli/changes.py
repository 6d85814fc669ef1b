"""Changes of forms, for people: digests cut, long values shown where they begin to differ."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mxt.action.explain import ABSENT, Change
from mxt.cli.cells import shorten, width_of

_CONTEXT = 16


def cut_digests(text: str) -> str:
    """Digests cut to 12 characters."""
    return re.sub(r"\b([0-9a-f]{12})[0-9a-f]{52}\b", r"\1", text)


def change_lines(change: Change, width: int, indent: str = "  ") -> Iterator[str]:
    """A change in one line, or its old and new value below it; never wider than width."""
    old, new = cut_digests(change.old), cut_digests(change.new)
    if not change.field:
        yield f"{indent}{change.new}"
        return
    line = f"{indent}{change.field}: {old} -> {new}"
    if width_of(line) <= width:
        yield line
        return
    yield shorten(f"{indent}{change.field}:", width)
    begin = _common(old, new)
    if ABSENT in (old, new) or begin <= _CONTEXT:
        begin = 0
    room = width - len(indent) - 4
    for mark, text in (("-", old), ("+", new)):
        shown = text if width_of(text) <= room or not begin else "..." + text[begin - _CONTEXT + 3 :]
        yield f"{indent}  {mark} {shorten(shown, room)}"


def _common(old: str, new: str) -> int:
    """How many characters both begin with."""
    count = 0
    for one, other in zip(old, new, strict=False):
        if one != other:
            break
        count += 1
    return count
