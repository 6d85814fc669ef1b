"""How far a long reading is, on a terminal; nothing for what takes no time."""

from __future__ import annotations

import os
import sys
import time

_FIRST_S, _INTERVAL_S = 0.5, 0.2


class Meter:
    """Called with the bytes done and the bytes in all; shows "<word>  12 %  1.0 GiB of 8.3 GiB"."""

    def __init__(self, word: str) -> None:
        self._word = word
        self._live = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._next = time.monotonic() + _FIRST_S
        self._shown = False

    def __call__(self, done: int, total: int) -> None:
        if not self._live:
            return
        now = time.monotonic()
        if now < self._next:
            return
        from mxt.words import size

        self._next = now + _INTERVAL_S
        self._shown = True
        share = f"{100 * done // total} %  {size(done)} of {size(total)}" if total else size(done)
        sys.stderr.write(f"\r\x1b[K{self._word}  {share}")
        sys.stderr.flush()

    def close(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
