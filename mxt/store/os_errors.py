"""The one place where the operating system's refusals become errors a user can act on."""

from __future__ import annotations

import errno
import os
from types import TracebackType

from mxt.errors import StoreError

_FULL = {errno.ENOSPC, errno.EDQUOT}
_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}


class explain_os_error:  # noqa: N801 - used as a verb, like contextlib.suppress
    """`with explain_os_error("store an output", path):` turns an OSError inside into a StoreError.

    doing: what mxt was about to do, an infinitive. path: the file or folder it concerns.
    """

    __slots__ = ("doing", "path")

    def __init__(self, doing: str, path: str | os.PathLike[str]) -> None:
        self.doing = doing
        self.path = path

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, OSError):
            raise store_error(error, self.doing, self.path) from error


def store_error(error: OSError, doing: str, path: str | os.PathLike[str]) -> StoreError:
    """The StoreError for an OSError met while `doing` something at path."""
    place = error.filename if isinstance(error.filename, str) else path
    where = os.fsencode(place).decode(errors="backslashreplace")  # a name that is not UTF-8 must be printable
    if error.errno in _FULL:
        return StoreError(
            f"cannot {doing}: the disk is full",
            where=where,
            hint="free some space (`mxt gc` removes what no target uses), or use another store with --store",
        )
    if error.errno == errno.EFBIG:
        return StoreError(
            f"cannot {doing}: the file is larger than this process may write",
            where=where,
            hint="raise the limit with `ulimit -f unlimited`",
        )
    if error.errno in _DENIED:
        why = "it is on a read-only filesystem" if error.errno == errno.EROFS else "permission denied"
        return StoreError(
            f"cannot {doing}: {why}",
            where=where,
            hint="make it writable for this user, or use another store with --store",
        )
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return StoreError(
            f"cannot {doing}: too many open files", where=where, hint="raise the limit with `ulimit -n 4096`"
        )
    if error.errno == errno.EIO:
        return StoreError(
            f"cannot {doing}: the disk reports an error",
            where=where,
            hint="check the disk; `dmesg` says more",
        )
    if error.errno in (errno.ENOTDIR, errno.EISDIR):
        return StoreError(
            f"cannot {doing}: {(error.strerror or '').lower()}",
            where=where,
            hint="move away what lies in the store's place, or use another store with --store",
        )
    return StoreError(f"cannot {doing}: {(error.strerror or str(error)).lower()}", where=where)
