"""Machine-wide locks of GPUs, across workspaces, stores and users."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Sequence

from mxt.errors import StoreError
from mxt.store.lock import Lock, OnWait, time_is_over
from mxt.store.os_errors import explain_os_error


def gpu_lock_folder() -> str:
    """Where the machine-wide locks lie: the same for all users, whoever comes first."""
    try:
        mode = os.stat("/run/lock").st_mode
        if stat.S_ISDIR(mode) and mode & 0o1777 == 0o1777:
            return "/run/lock"
    except OSError:
        pass
    return "/tmp"  # noqa: S108 - _open_sticky is made for such a folder


def acquire_gpus(
    devices: Sequence[str],
    on_wait: OnWait | None = None,
    *,
    exclusive: bool = True,
    cancelled: Callable[[], bool] | None = None,
    timeout_s: float | None = None,
    folder: str | None = None,
) -> list[Lock] | None:
    """Machine-wide locks of GPUs, across workspaces and users; None as with `Locks.acquire`.

    devices: stable names such as UUIDs. exclusive: as the probe needs it; else shared with the like.
    Taken in one order, so that two builds cannot wait for each other. The fds are inheritable.
    """
    held: list[Lock] = []
    try:
        for device in sorted(set(devices)):
            name = "".join(c if c.isalnum() or c in "-_" else "_" for c in device)
            path = f"{folder or gpu_lock_folder()}/mxt-gpu-{name}.lock"
            with explain_os_error("lock a GPU", path):
                lock = _acquire_gpu(path, exclusive, on_wait, cancelled, timeout_s)
            if lock is None:
                break
            held.append(lock)
        else:
            return held
    except BaseException:
        for lock in held:
            lock.release()
        raise
    for lock in held:
        lock.release()
    return None


def _acquire_gpu(
    path: str,
    exclusive: bool,
    on_wait: OnWait | None,
    cancelled: Callable[[], bool] | None,
    timeout_s: float | None,
) -> Lock | None:
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    fd = _open_sticky(path)
    how = (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB
    pause = 0.02
    try:
        while True:
            try:
                fcntl.flock(fd, how)
                os.set_inheritable(fd, True)
                return Lock(fd, path)
            except BlockingIOError:
                pass
            if time_is_over(deadline, cancelled):
                os.close(fd)
                return None
            if on_wait is not None:
                on_wait(0)
                on_wait = None
            time.sleep(pause)
            pause = min(pause * 1.5, 1.0)
    except BaseException:
        with contextlib.suppress(OSError):
            os.close(fd)
        raise


def _open_sticky(path: str) -> int:
    """Open or make a lock file in a folder where everybody may write.

    No O_CREAT on a file that exists (fs.protected_regular forbids it for others' files), no symlink
    followed, read-only as flock needs no more, never removed (another user could not make it anew).
    """
    for _ in range(10):
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            try:
                fd = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
                os.fchmod(fd, 0o644)  # whatever the umask
                return fd
            except FileExistsError:
                continue
        except OSError as error:
            if error.errno == errno.ELOOP:
                break
            raise
        if stat.S_ISREG(os.fstat(fd).st_mode):
            return fd
        os.close(fd)
        break
    raise StoreError("the lock of a GPU is no regular file", where=path, hint="remove it by hand")
