"""Finds what an action left running, without looking at every process of the machine.

mxt makes itself the reaper of its orphans (PR_SET_CHILD_SUBREAPER): a process whose parent ends becomes
mxt's own child, so what outlived an action is among a handful of children. Where the kernel offers none of
this, all processes are looked at, which costs a millisecond and more for each action.
"""

from __future__ import annotations

import os

_SUBREAPER = 36

# children that somebody waits for: actions, the warden, the sweeper, and what was there before
mine: set[int] = set()
_adopting: bool | None = None


def adopt() -> bool:
    """From now on orphans become children of this process; False where that cannot be had."""
    global _adopting
    if _adopting is None:
        try:
            import ctypes

            done = ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, 1, 0, 0, 0) == 0
        except (OSError, AttributeError, ImportError):
            done = False
        _adopting = done and os.path.exists(_children_file())
        if _adopting:
            mine.update(_children())
    return _adopting


def orphans() -> list[int] | None:
    """Children that nobody waits for, as their parents have ended; None where that cannot be known."""
    if adopt():
        try:
            return [pid for pid in _children() if pid not in mine]
        except OSError:
            pass
    return None


def bury(pids: list[int]) -> None:
    """Wait for those that have ended, lest they fill the table of processes."""
    for pid in pids:
        try:
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG)
        except ChildProcessError:
            pass


def _children() -> list[int]:
    with open(_children_file(), "rb") as file:
        return [int(pid) for pid in file.read().split()]


def _children_file() -> str:
    # orphans go to the main thread, which has the number of the process
    pid = os.getpid()
    return f"/proc/{pid}/task/{pid}/children"
