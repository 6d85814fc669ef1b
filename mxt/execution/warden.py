"""Kills what is left of a build's children when mxt itself is killed, or when an action ends without them.

The sandbox mostly does this by itself, as its processes share a fate; but one whose mxt dies in the very
moment of its start escapes that, and without a sandbox nothing holds a process that left its group. One
that outlived mxt would go on writing into the progress of an action that the next build resumes. So every
action carries a mark in its environment, which its descendants inherit.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

from mxt.execution.orphans import bury, mine, orphans

MARK = "MXT_ACTION"
_TRIES = 2000


class Warden:
    """A forked process that waits for the end of mxt and then kills all that bears the build's mark."""

    def __init__(self) -> None:
        self._build = os.urandom(8).hex()
        self._count = 0
        reader, self._pipe = os.pipe2(os.O_CLOEXEC)
        ready_r, ready_w = os.pipe2(os.O_CLOEXEC)
        pid = os.fork()
        if pid == 0:
            os.close(self._pipe)
            _watch(reader, ready_w, self._build)
        os.close(reader)
        os.close(ready_w)
        os.read(ready_r, 1)  # from now on a signal to mxt's process group does not reach it
        os.close(ready_r)
        self._pid = pid
        mine.add(pid)

    def next_mark(self) -> str:
        """A mark for one more action."""
        self._count += 1
        return f"{self._build}.{self._count}"

    def close(self) -> None:
        """The build has ended in order and left nothing running."""
        try:
            os.write(self._pipe, b".")
        except BrokenPipeError:
            pass
        os.close(self._pipe)
        try:
            os.waitpid(self._pid, 0)
        except ChildProcessError:
            pass


def end_orphans(mark: str) -> None:
    """Kill what an action that has ended left running, and bury what has ended by itself."""
    for _ in range(_TRIES):
        pids = orphans()
        if pids is None:
            kill_marked(mark)
            return
        if not pids:
            return
        needle = f"{MARK}={mark}".encode()
        found = [pid for pid in pids if _kill_if_marked(pid, needle)]
        bury(pids)
        if not found:
            return
        time.sleep(0.001)  # the children of one that was killed come to us now


def end_strays() -> None:
    """Kill what any action left running that wears no mark: one may clear its environment.

    For the end of a build, when no action runs and whatever is not ours is theirs.
    """
    for _ in range(_TRIES):
        pids = orphans()
        if not pids:
            return
        for pid in pids:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        bury(pids)
        time.sleep(0.001)


def kill_marked(mark: str) -> None:
    """Kill every process of this user that bears the mark, or one that begins so if it ends in a dot."""
    needle = f"{MARK}={mark}".encode()
    for _ in range(200):
        found = False
        for name in os.listdir("/proc"):
            if name.isdigit() and _kill_if_marked(int(name), needle):
                found = True
        if not found:
            return
        time.sleep(0.01)


def _kill_if_marked(pid: int, needle: bytes) -> bool:
    """Whether that process bore the mark and lived."""
    try:
        # opened before its environment is read, so that no other process of that number can be hit
        pidfd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            environment = file.read()
        whole = b"" if needle.endswith(b".") else b"\0"
        if b"\0" + needle + whole not in b"\0" + environment:
            return False
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except OSError:
        return False
    finally:
        os.close(pidfd)
    return True


def _watch(reader: int, ready: int, build: str) -> None:
    """Never returns."""
    try:
        os.setsid()
        for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(sign, signal.SIG_IGN)
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        os.write(ready, b"r")
        os.close(ready)
        if not os.read(reader, 1):
            kill_marked(f"{build}.")
            # an action that mxt was just starting has no environment of its own yet
            time.sleep(0.1)
            kill_marked(f"{build}.")
    finally:
        os._exit(0)
