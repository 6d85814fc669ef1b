"""Lines at the foot of a terminal that are drawn again and again, below lines that stay.

Nothing is hidden and no mode is switched: a killed mxt leaves a terminal that works.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TextIO

from mxt.cli.cells import crop, width_of


def writable(text: str, stream: TextIO) -> str:
    """text as the stream will write it: what its encoding lacks is escaped now, so its width is known."""
    if text.isascii():
        return text
    encoding = stream.encoding or "ascii"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def bars_of(stream: TextIO) -> str:
    """Two characters: of a bar's done and undone part."""
    return "━─" if writable("━─", stream) == "━─" else "#."


class Screen:
    """A block of at most as many lines as the terminal shows; its cursor rests on the line below."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._drawn: list[int] = []

    def size(self) -> tuple[int, int]:
        """Columns and lines, asked anew each time: people resize."""
        try:
            columns, lines = os.get_terminal_size(self._stream.fileno())
        except (OSError, ValueError):
            columns, lines = 0, 0
        return columns or 80, lines or 24

    def draw(self, lasting: Sequence[str], block: Sequence[str]) -> None:
        """Print lines that stay, then the block in place of the last one; one write, so nothing flickers."""
        columns, lines = self.size()
        # the last column stays empty: some terminals wrap as soon as it is taken
        shown = [crop(writable(line, self._stream), columns - 1) for line in block[-max(1, lines - 1) :]]
        text = self._erase(columns)
        text += "".join(f"{line}\n" for line in lasting)
        text += "".join(f"{line}\n" for line in shown)
        self._drawn = [width_of(line) for line in shown]
        if text:
            self._stream.write(text)
            self._stream.flush()

    def _erase(self, columns: int) -> str:
        """Back to where the block began. Lines that a narrower terminal has wrapped take several rows."""
        if not self._drawn:
            return ""
        rows = sum(max(1, -(-width // columns)) for width in self._drawn)
        return f"\r\x1b[{rows}A\x1b[J"
