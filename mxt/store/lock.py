"""Locks between processes: action keys, and the store as a whole.

All are flock: the kernel lets go of them when the last process that holds the descriptor ends, so
SIGKILL leaves nothing to clean up. The descriptor of a key's lock may be handed to the action
(`pass_fds=(lock.fd,)`): an action that outlives its mxt then keeps the key locked until it ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from mxt.store.layout import Layout, make_parent
from mxt.store.os_errors import explain_os_error

# called once when a lock is held by others, with the holder's process id (0: not known)
OnWait = Callable[[int], None]


class Lock:
    """A lock that is held until `release` or the end of the with block."""

    def __init__(self, fd: int, path: str, *, remove: bool = False) -> None:
        self.fd = fd
        self.path = path
        self._remove = remove

    def release(self) -> None:
        """Let go; again is harmless."""
        if self.fd < 0:
            return
        if self._remove:  # while it is still held: whoever waits sees that its file is gone and begins anew
            with contextlib.suppress(OSError):
                os.unlink(self.path)
        os.close(self.fd)
        self.fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class Locks:
    """The locks of one store."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout

    def acquire(
        self,
        key: str,
        on_wait: OnWait | None = None,
        *,
        cancelled: Callable[[], bool] | None = None,
        timeout_s: float | None = None,
    ) -> Lock | None:
        """The exclusive lock of an action key; waits for another build. Its fd is inheritable.

        None when `cancelled()` became true or the time is over (timeout_s=0: try once). Polls, so that
        neither Ctrl-C nor a scheduler's thread is ever stuck in it.
        """
        path = str(self.layout.lock(key))
        with explain_os_error("lock an action", path):
            return _acquire(path, fcntl.LOCK_EX, on_wait, cancelled, timeout_s, inheritable=True, remove=True)

    def shared(self, on_wait: OnWait | None = None, *, timeout_s: float | None = None) -> Lock | None:
        """The store's lock as builds take it, for moments: many at once, none during a gc."""
        path = str(self.layout.lock("store"))
        with explain_os_error("lock the store", path):
            return _acquire(path, fcntl.LOCK_SH, on_wait, None, timeout_s)

    def exclusive(self, on_wait: OnWait | None = None, *, timeout_s: float | None = None) -> Lock | None:
        """The store's lock as gc takes it: alone."""
        path = str(self.layout.lock("store"))
        with explain_os_error("lock the store", path):
            return _acquire(path, fcntl.LOCK_EX, on_wait, None, timeout_s)


def _acquire(
    path: str,
    how: int,
    on_wait: OnWait | None,
    cancelled: Callable[[], bool] | None,
    timeout_s: float | None,
    *,
    inheritable: bool = False,
    remove: bool = False,
) -> Lock | None:
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    pause = 0.01
    told = False
    while True:
        fd = _open(path)
        try:
            fcntl.flock(fd, how | fcntl.LOCK_NB)
            if _is_at(fd, path):
                if how == fcntl.LOCK_EX:
                    os.ftruncate(fd, 0)
                    os.pwrite(fd, b"%d\n" % os.getpid(), 0)
                os.set_inheritable(fd, inheritable)
                return Lock(fd, path, remove=remove)
            os.close(fd)  # its holder removed it while we opened it
            continue
        except BlockingIOError:
            holder = _holder(fd)
            os.close(fd)
        except BaseException:
            os.close(fd)
            raise
        if time_is_over(deadline, cancelled):
            return None
        if on_wait is not None and not told:
            on_wait(holder)
            told = True
        time.sleep(pause)
        pause = min(pause * 1.5, 0.2)


def time_is_over(deadline: float | None, cancelled: Callable[[], bool] | None) -> bool:
    """Whether a wait must end, by the monotonic clock or by its caller's wish."""
    return (deadline is not None and time.monotonic() >= deadline) or (cancelled is not None and cancelled())


def _open(path: str) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(path, flags, 0o644)
    except FileNotFoundError:
        make_parent(path)
        return os.open(path, flags, 0o644)


def _is_at(fd: int, path: str) -> bool:
    try:
        there = os.lstat(path)
    except FileNotFoundError:
        return False
    mine = os.fstat(fd)
    return (there.st_ino, there.st_dev) == (mine.st_ino, mine.st_dev)


def _holder(fd: int) -> int:
    try:
        return int(os.pread(fd, 20, 0))
    except (OSError, ValueError):
        return 0
