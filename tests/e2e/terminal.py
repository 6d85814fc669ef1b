"""A terminal for tests: runs mxt in a pseudo-terminal and keeps the screen as a person sees it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
import unicodedata
from dataclasses import dataclass, field

from tests.e2e.conftest import Workspace

_CONTROL = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])")


class Terminal:
    """As much of one as mxt asks for: text, wide characters, wrapping, scrolling, cursor up, erasing, colours.

    Narrowed, it wraps its lines anew, as most terminals do.
    """

    def __init__(self, columns: int, rows: int = 24) -> None:
        self.columns, self.rows = columns, rows
        # logical lines, each a list of cells; a wide character is followed by an empty cell
        self._lines: list[list[str]] = [[]]
        self._row = 0  # of the cursor, in screen rows from the first line
        self._column = 0
        self._rest = ""

    def feed(self, text: str) -> None:
        text, self._rest = self._rest + text, ""
        at = 0
        while at < len(text):
            if text[at] == "\x1b":
                found = _CONTROL.match(text, at)
                if found is None:
                    if len(text) - at < 12:
                        self._rest = text[at:]
                        return
                    raise AssertionError(f"a control sequence that no terminal needs: {text[at : at + 12]!r}")
                self._control(found[1], found[2])
                at = found.end()
                continue
            self._character(text[at])
            at += 1

    def lines(self) -> list[str]:
        """Everything from the first line on, without blanks at the ends, wrapped as it is shown."""
        return ["".join(row).rstrip() for row in self._wrapped() if "".join(row).strip()]

    def screen(self) -> list[str]:
        """What is visible."""
        return self.lines()[-self.rows :]

    def resize(self, columns: int) -> None:
        assert self._column == 0, "the cursor rests at the beginning of a line between two frames"
        line, _ = self._place(self._row)
        self.columns = columns
        self._row = sum(self._height(other) for other in self._lines[:line])

    def _height(self, line: list[str]) -> int:
        return max(1, -(-len(line) // self.columns))

    def _wrapped(self) -> list[list[str]]:
        n = self.columns
        return [line[i : i + n] for line in self._lines for i in range(0, max(1, len(line)), n)]

    def _place(self, row: int) -> tuple[int, int]:
        """The logical line of a screen row, and at which of its cells the row begins."""
        for number, line in enumerate(self._lines):
            height = self._height(line)
            if row < height:
                return number, row * self.columns
            row -= height
        return len(self._lines) - 1, 0

    def _character(self, character: str) -> None:
        if character == "\r":
            self._column = 0
        elif character == "\n":
            line, _ = self._place(self._row)
            if line == len(self._lines) - 1:
                self._lines.append([])
            self._row = sum(self._height(other) for other in self._lines[: line + 1])
            # \n alone would keep the column; the line discipline sends \r before it
        else:
            assert character.isprintable(), repr(character)
            number, offset = self._place(self._row)
            line, at = self._lines[number], offset + self._column
            wide = unicodedata.east_asian_width(character) in "WF"
            line.extend([" "] * (at - len(line)))
            line[at : at + 1 + wide] = [character, ""][: 1 + wide]
            self._column += 1 + wide
            if self._column > self.columns:
                self._row, self._column = self._row + 1, self._column - self.columns

    def _control(self, numbers: str, letter: str) -> None:
        if letter == "m":
            return
        if letter == "A":
            self._row = max(0, self._row - int(numbers or 1))
        elif letter == "J" and numbers in ("", "0"):
            number, offset = self._place(self._row)
            del self._lines[number + 1 :]
            del self._lines[number][offset + self._column :]
        else:
            raise AssertionError(f"a control sequence that no terminal needs: {numbers}{letter}")


@dataclass
class Shown:
    """How a command went. screens: what was visible after each write. raw: all that it wrote."""

    code: int
    terminal: Terminal
    screens: list[list[str]] = field(default_factory=list)
    raw: str = ""


def in_terminal(
    ws: Workspace,
    columns: int,
    *args: str,
    rows: int = 24,
    env: dict[str, str] | None = None,
    until: str = "",
    then: bytes = b"",
    narrow_to: int = 0,
) -> Shown:
    """Run mxt in a terminal of that size. until: once this is on the screen, `then` is typed, or it is resized."""
    variables = {k: v for k, v in ws.env.items() if k not in ("NO_COLOR", "COLUMNS", "LINES", "CI")}
    command = ws.command(*args)
    process, master = pty.fork()
    if process == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        os.chdir(ws.root)
        os.execve(command[0], command, {**variables, "TERM": "xterm-256color", **(env or {})})
    done = Shown(-1, Terminal(columns, rows))
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if not select.select([master], [], [], 1)[0]:
            continue
        try:
            data = os.read(master, 65536)
        except OSError:
            break
        if not data:
            break
        text = data.decode(errors="replace")
        done.raw += text
        done.terminal.feed(text)
        done.screens.append(done.terminal.screen())
        if until and until in "\n".join(done.screens[-1]):
            until = ""
            if then:
                os.write(master, then)
            if narrow_to:
                done.terminal.resize(narrow_to)
                fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, narrow_to, 0, 0))
    else:
        os.kill(process, signal.SIGKILL)
    os.close(master)
    done.code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    return done
