"""Text measured in terminal cells: a wide character takes two, a combining one none."""

from __future__ import annotations

import os
import unicodedata
from typing import IO


def width_of(text: str) -> int:
    """Cells that text takes; control characters count as none."""
    if text.isascii():
        return len(text)
    return sum(map(_cell, text))


def _cell(character: str) -> int:
    if character.isascii():
        return 1
    if unicodedata.combining(character) or unicodedata.category(character) in ("Cf", "Cc", "Me", "Mn"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def crop(text: str, cells: int) -> str:
    """The beginning of text that fits."""
    if text.isascii():
        return text[: max(0, cells)]
    used = 0
    for at, character in enumerate(text):
        used += _cell(character)
        if used > cells:
            return text[:at]
    return text


def crop_left(text: str, cells: int) -> str:
    """The end of text that fits."""
    if text.isascii():
        return text[len(text) - cells :] if 0 < cells < len(text) else text if cells > 0 else ""
    used = 0
    for at in range(len(text) - 1, -1, -1):
        used += _cell(text[at])
        if used > cells:
            return text[at + 1 :].lstrip("\u0300\u0301\u200d\ufe0f")
    return text


def shorten(text: str, cells: int, *, keep_end: bool = False) -> str:
    """text itself, or as much of its beginning (keep_end: its end) as fits with "..." """
    if width_of(text) <= cells:
        return text
    if cells <= 3:
        return crop(text, cells)
    return "..." + crop_left(text, cells - 3) if keep_end else crop(text, cells - 3) + "..."


def pad(text: str, cells: int, *, right: bool = False) -> str:
    """text filled with blanks to that width; right: blanks before it."""
    blanks = " " * max(0, cells - width_of(text))
    return blanks + text if right else text + blanks


def columns_of(stream: IO[str], otherwise: int) -> int:
    """The width of the terminal behind a stream, COLUMNS before it; `otherwise` where there is none."""
    wanted = os.environ.get("COLUMNS", "")
    if wanted.isdecimal() and int(wanted) > 0:
        return int(wanted)
    try:
        return os.get_terminal_size(stream.fileno()).columns or otherwise
    except (OSError, ValueError):
        return otherwise
