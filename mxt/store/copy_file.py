"""Copying a file as cheaply as the filesystem can: shared blocks, else in the kernel, else by hand."""

from __future__ import annotations

import errno
import fcntl
import os

from mxt.store.digest import open_regular

_FICLONE = 0x40049409
_CANNOT_CLONE = {
    errno.EXDEV,
    errno.EINVAL,
    errno.ENOSYS,
    errno.EOPNOTSUPP,
    errno.EBADF,
    errno.ENOTTY,
    errno.EPERM,
}


def copy_file(source: str | os.PathLike[str], dest: str | os.PathLike[str]) -> None:
    """Copy a regular file's bytes to dest, which must not exist; shares the blocks where it can."""
    fd = open_regular(source)
    try:
        out = os.open(dest, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            _copy(fd, out)
        except BaseException:
            os.unlink(dest)
            raise
        finally:
            os.close(out)
    finally:
        os.close(fd)


def _copy(fd: int, out: int) -> None:
    try:
        fcntl.ioctl(out, _FICLONE, fd)
        return
    except OSError as error:
        if error.errno not in _CANNOT_CLONE:
            raise
    try:
        while os.copy_file_range(fd, out, 1 << 30):
            pass
        # some filesystems answer 0 at once for files of no stated size: the loop below sees to it
    except OSError as error:
        if error.errno not in _CANNOT_CLONE:
            raise
    while data := os.read(fd, 1 << 20):
        view = memoryview(data)
        while view:
            view = view[os.write(out, view) :]
