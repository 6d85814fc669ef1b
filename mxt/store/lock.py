"""Locks between processes: action keys, and the store as a whole.

The kernel lets go of them when the last process that holds the descriptor ends, so SIGKILL leaves nothing to
clean up. The descriptor of a key's lock may be handed to the action (`pass_fds=(lock.fd,)`): an action that
outlives its mxt then keeps the key locked until it ends.

The store's lock is a flock. Keys share one file, of which each locks a byte (an open file description lock,
Linux): a file a key would have to be made and deleted for every action, and on ext4 the deleting makes the
next few seconds' files dearer.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from mxt.errors import StoreError
from mxt.store.digest import hash_bytes
from mxt.store.layout import Layout, make_parent
from mxt.store.os_errors import explain_os_error

# called once when a lock is held by others, with the holder's process id (0: not known)
OnWait = Callable[[int], None]


class Lock:
    """A lock that is held until `release` or the end of the with block."""

    def __init__(self, fd: int, path: str, *, byte: int | None = None) -> None:
        self.fd = fd
        self.path = path
        self._byte = byte

    def release(self) -> None:
        """Let go; again is harmless."""
        if self.fd < 0:
            return
        if self._byte is not None:  # closing would leave it to whom the descriptor was handed
            with contextlib.suppress(OSError):
                fcntl.fcntl(self.fd, fcntl.F_OFD_SETLK, _range(fcntl.F_UNLCK, self._byte))
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
        neither Ctrl-C nor a scheduler's thread is ever stuck in it. Who holds it is not known.
        """
        path = str(self.layout.lock("keys"))
        # 60 bits of the key: two that share them would wait for each other, no more
        byte = int(hash_bytes(key.encode())[:15], 16)
        with explain_os_error("lock an action", path):
            lock = _wait(lambda: _try_byte(path, byte), on_wait, cancelled, timeout_s)
            if lock is not None:
                os.set_inheritable(lock.fd, True)
            return lock

    def held(self, key: str) -> bool:
        """Whether a build holds the lock of a key."""
        try:
            lock = self.acquire(key, timeout_s=0)
        except StoreError:
            return False
        if lock is not None:
            lock.release()
        return lock is None

    def shared(self, on_wait: OnWait | None = None, *, timeout_s: float | None = None) -> Lock | None:
        """The store's lock as builds take it, for moments: many at once, none during a gc."""
        path = str(self.layout.lock("store"))
        with explain_os_error("lock the store", path):
            return _wait(lambda: _try_flock(path, fcntl.LOCK_SH), on_wait, None, timeout_s)

    def exclusive(self, on_wait: OnWait | None = None, *, timeout_s: float | None = None) -> Lock | None:
        """The store's lock as gc takes it: alone."""
        path = str(self.layout.lock("store"))
        with explain_os_error("lock the store", path):
            return _wait(lambda: _try_flock(path, fcntl.LOCK_EX), on_wait, None, timeout_s)


def _wait(
    attempt: Callable[[], Lock | int],
    on_wait: OnWait | None,
    cancelled: Callable[[], bool] | None,
    timeout_s: float | None,
) -> Lock | None:
    """attempt: gives the lock, or the process id of its holder (0: not known)."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    pause = 0.01
    told = False
    while True:
        found = attempt()
        if isinstance(found, Lock):
            return found
        if time_is_over(deadline, cancelled):
            return None
        if on_wait is not None and not told:
            on_wait(found)
            told = True
        time.sleep(pause)
        pause = min(pause * 1.5, 0.2)


def _try_flock(path: str, how: int) -> Lock | int:
    fd = _open(path)
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
        if how == fcntl.LOCK_EX:
            os.ftruncate(fd, 0)
            os.pwrite(fd, b"%d\n" % os.getpid(), 0)
        return Lock(fd, path)
    except BlockingIOError:
        holder = _holder(fd)
        os.close(fd)
        return holder
    except BaseException:
        os.close(fd)
        raise


def _try_byte(path: str, byte: int) -> Lock | int:
    fd = _open(path)
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _range(fcntl.F_WRLCK, byte))
        return Lock(fd, path, byte=byte)
    except OSError as error:
        os.close(fd)
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return 0
        raise
    except BaseException:
        os.close(fd)
        raise


def _range(kind: int, byte: int) -> bytes:
    """struct flock for one byte. The process id must be 0 for locks of this kind."""
    return struct.pack("@hhqqi4x", kind, os.SEEK_SET, byte, 1, 0)


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


def _holder(fd: int) -> int:
    try:
        return int(os.pread(fd, 20, 0))
    except (OSError, ValueError):
        return 0
