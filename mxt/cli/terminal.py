"""What every verb prints with: colours where they are wanted, errors, warnings."""

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
