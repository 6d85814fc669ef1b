"""Leases: what running builds need, so that a gc beside them takes none of it away.

leases/<pid>-<nonce> holds the time it began (ns), then one key or digest a line; and a flock for as long
as its build lives: a dead build's lease is known by its free lock, whatever became of its process id.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterable
from types import TracebackType
from typing import NamedTuple, Self

from mxt.store.layout import Layout, make_parent
from mxt.store.lock import Locks
from mxt.store.os_errors import explain_os_error


class Lease:
    """A running build's claim. `hold` a key before looking it up; what it stores anew is safe anyway."""

    def __init__(self, layout: Layout) -> None:
        self._locks = Locks(layout)
        self._held: set[str] = set()
        self.path = layout.leases / f"{os.getpid()}-{os.urandom(4).hex()}"
        with explain_os_error("take a lease on the store", self.path):
            lock = self._locks.shared()
            try:
                make_parent(self.path)
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
                self._fd = os.open(self.path, flags, 0o644)
                fcntl.flock(self._fd, fcntl.LOCK_EX)
                # by the clock of the filesystem, as it is compared with the times of files there
                os.write(self._fd, b"%d\n" % os.fstat(self._fd).st_ctime_ns)
            finally:
                if lock is not None:
                    lock.release()

    def hold(self, names: Iterable[str]) -> None:
        """Keep these action keys and digests, with all of their outputs. Waits while a gc runs."""
        fresh = [name for name in dict.fromkeys(names) if name not in self._held]
        if not fresh:
            return
        with explain_os_error("extend a lease on the store", self.path):
            lock = self._locks.shared()
            try:
                data = memoryview("".join(f"{name}\n" for name in fresh).encode())
                while data:
                    data = data[os.write(self._fd, data) :]
            finally:
                if lock is not None:
                    lock.release()
        self._held.update(fresh)

    def release(self) -> None:
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                os.unlink(self.path)
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class LiveLease(NamedTuple):
    """names: keys and digests. since_ns: when the build began, by the clock of the filesystem."""

    names: tuple[str, ...]
    since_ns: int


def live_leases(layout: Layout, *, remove_dead: bool = False) -> list[LiveLease]:
    """The leases of builds that run."""
    out = []
    try:
        listing = sorted(os.listdir(layout.leases))
    except OSError:
        return []
    for name in listing:
        path = layout.leases / name
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            with open(fd, encoding="ascii", errors="replace", closefd=False) as file:
                lines = file.read().splitlines()
            since = int(lines[0]) if lines and lines[0].isdigit() else 0
            out.append(LiveLease(tuple(lines[1:]), since))
        else:
            if remove_dead:
                with contextlib.suppress(OSError):
                    os.unlink(path)
        finally:
            os.close(fd)
    return out
