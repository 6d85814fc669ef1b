"""What every verb prints with: colours where they are wanted, errors, sizes and times in words."""

from __future__ import annotations

import os
import sys
from typing import IO

from mxt.errors import MxtError

_CODES = {"red": "31", "green": "32", "yellow": "33", "cyan": "36", "bold": "1", "dim": "2"}


def colour_wanted(stream: IO[str]) -> bool:
    """NO_COLOR wins, then FORCE_COLOR, then whether the stream is a terminal."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def paint(text: str, style: str, stream: IO[str]) -> str:
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if colour_wanted(stream) else text


def print_error(error: MxtError) -> None:
    """The error on standard error, its first word in red."""
    lines = str(error).split("\n")
    print(paint("error:", "red", sys.stderr), *lines[:1], file=sys.stderr)
    for line in lines[1:]:
        print(line, file=sys.stderr)
    sys.stderr.flush()


def warn(text: str) -> None:
    print(warning(text), file=sys.stderr, flush=True)


def warning(text: str) -> str:
    """A warning's line for standard error."""
    return f"{paint('warning:', 'yellow', sys.stderr)} {text}"


def duration(seconds: float) -> str:
    """0.04 s, 12.3 s, 3:05 min, 2:05:09 h."""
    if seconds < 1:
        return f"{seconds:.2f} s"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}:{rest:02d} min"
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d} h"


def size(count: float) -> str:
    """Bytes in binary units: 512 B, 1.5 KiB, 2.0 GiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def plural(count: int, noun: str) -> str:
    """1 action, 2 actions."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
