"""Deletes the temporary folders of actions that have ended, in a process of its own.

A folder costs 80 us to remove on ext4 and an action has eight; in mxt's own process that was a third of
what a trivial action cost.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

from mxt.execution.orphans import mine
from mxt.store.materialise import remove_tree


class Sweeper:
    """Takes paths and removes them some time later; `close` waits until all are gone."""

    def __init__(self) -> None:
        reader, self._pipe = os.pipe2(os.O_CLOEXEC)
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._pipe)
            _sweep(reader)
        os.close(reader)
        mine.add(self._pid)

    def remove(self, path: Path) -> None:
        """Remove a folder whatever is in it. What resists, or a sweeper that was killed, leaves it to gc."""
        try:
            os.write(self._pipe, os.fsencode(path) + b"\0")
        except BrokenPipeError:
            pass

    def close(self) -> None:
        os.close(self._pipe)
        try:
            os.waitpid(self._pid, 0)
        except ChildProcessError:
            pass


def _sweep(reader: int) -> None:
    """Never returns."""
    try:
        os.setsid()  # Ctrl-C in the terminal is for mxt
        for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(sign, signal.SIG_IGN)
        rest = b""
        while chunk := os.read(reader, 65536):
            *paths, rest = (rest + chunk).split(b"\0")
            for path in paths:
                try:
                    remove_tree(os.fsdecode(path))
                except OSError:
                    pass
    finally:
        os._exit(0)
