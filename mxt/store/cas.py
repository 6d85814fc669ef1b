"""The content-addressed store: digest -> bytes, one inode per (digest, executable bit).

How it stays whole. A blob appears by link or rename of a finished file, so it is there or not, also
after SIGKILL. It is read-only and sealed (see layout.SEAL_NS): a look-up costs one lstat, and only a
blob whose size or seal is wrong is hashed again; if its bytes are wrong too, it is moved to
quarantine/ and is a miss. Files of 8 MiB and more are synced to the disk before they are sealed, for they
are costly to make; smaller ones are not: what a power cut leaves of them has the wrong size and is a miss.
A build lets the disk work while it goes on (`settle_later`), and waits for it at its end: until then such a
blob has no seal, and whoever else looks at it hashes it.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from mxt.errors import StoreError
from mxt.store.copy_file import copy_file
from mxt.store.digest import EMPTY, Digest, FileHash, hash_bytes, hash_file, hash_whole, kind_of, open_regular
from mxt.store.layout import SEAL_TIMES, Layout, is_sealed, make_parent, write_aside
from mxt.store.os_errors import explain_os_error

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

_SYNC_FROM = 8 << 20
_CANNOT_LINK = {errno.EXDEV, errno.EMLINK, errno.EPERM, errno.EOPNOTSUPP, errno.EACCES}


class MissingBlob(StoreError):  # noqa: N818 - what is caught is a missing blob
    """A digest that the store does not hold (any more)."""

    def __init__(self, digest: str, where: str) -> None:
        super().__init__(
            f"blob {digest!r} is missing or damaged", where=where, hint="build again: it is made anew"
        )
        self.digest = digest


class Cas:
    """Blobs by digest. Safe for any number of threads and processes at once."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.settle_later = False
        self._unsettled: dict[str, int] = {}  # place -> inode
        self._settling: list[Future[None]] = []
        self._pool: ThreadPoolExecutor | None = None

    # looking

    def path(self, digest: str, executable: bool = False) -> Path:
        """Where that form of a blob lies, whether or not it is there."""
        return Path(self.layout.blob(digest, executable))

    def has(self, digest: str, size: int | None = None) -> bool:
        """Whether a sound blob is there, in either form. size: bytes it must have. One lstat when it is."""
        return self.locate(digest, size) is not None

    def locate(self, digest: str, size: int | None = None) -> str | None:
        """The path of either sound form of a blob, or None; sets damaged ones aside."""
        for executable in (False, True):
            place = self.layout.blob(digest, executable)
            if self._sound(place, digest, size, executable):
                return place
        return None

    def read(self, digest: str) -> bytes:
        """All bytes of a blob, hashed while at it. Raises MissingBlob."""
        for executable in (False, True):
            place = self.layout.blob(digest, executable)
            with explain_os_error("read a blob", place):
                try:
                    with open(place, "rb") as file:
                        data = file.read()
                        facts = os.fstat(file.fileno())
                except FileNotFoundError:
                    continue
            if hash_bytes(data) == digest:
                return data
            self._set_aside(place, facts)
        raise MissingBlob(digest, self.layout.text)

    def verify(self, digest: str, size: int | None = None) -> bool:
        """Hash every form that is there, whatever its seal; whether a sound one is left."""
        left = False
        for executable in (False, True):
            place = self.layout.blob(digest, executable)
            if self._sound(place, digest, size, executable, trust_seal=False):
                left = True
        return left

    # storing

    def put_bytes(self, data: bytes) -> Digest:
        """Store data as a blob."""
        digest = hash_bytes(data)
        self.put(digest, data)
        return digest

    def put(self, digest: str, data: bytes) -> None:
        """Store data whose digest the caller has computed."""
        place = self.layout.blob(digest)
        if self._sound(place, digest, len(data), False):
            _renew(place)
            return
        with explain_os_error("store a blob", self.layout.root):
            aside = write_aside(self.layout, data, mode=0o444, sealed=True)
            try:
                self._link(aside, place, digest, len(data), False)
            finally:
                os.unlink(aside)

    def store_file(self, path: str | os.PathLike[str], *, executable: bool | None = None) -> FileHash:
        """Hash a finished file that mxt's own action made, and adopt it.

        executable: None means as its mode says.
        """
        with explain_os_error("read an output", path):
            found = hash_file(path)
            if executable is None:
                executable = bool(os.stat(path).st_mode & stat.S_IXUSR)
        self.adopt(path, found.digest, executable=executable)
        return found

    def adopt(self, path: str | os.PathLike[str], digest: str, *, executable: bool = False) -> None:
        """Take a produced file, hashed by the caller, into the store; path is afterwards a link to the blob.

        The file's inode becomes the blob (0444 or 0555) unless the blob exists already. A file that
        has other links is copied: chmod would reach whoever holds them. Source files: `copy_in`.
        """
        source = os.fspath(path)
        place = self.layout.blob(digest, executable)
        with explain_os_error("store an output", source):
            facts = os.lstat(source)
            if not stat.S_ISREG(facts.st_mode):
                raise StoreError(f"an output is {kind_of(facts.st_mode)}, not a regular file", where=source)
            if facts.st_nlink > 1:
                if _same_inode(place, facts):
                    return
                self.copy_in(source, digest, executable=executable)
                self._relink(place, source)
                return
            os.chmod(source, 0o555 if executable else 0o444)
            later = facts.st_size >= _SYNC_FROM and self.settle_later
            if later:
                self._unsettled[place] = facts.st_ino
            else:
                if facts.st_size >= _SYNC_FROM:
                    _sync(source)
                os.utime(source, ns=SEAL_TIMES)
            try:
                if not self._link(source, place, digest, facts.st_size, executable):
                    self._relink(place, source)
                    if later and self._unsettled.get(place) == facts.st_ino:
                        del self._unsettled[place]
                elif later:
                    self._settle(place)
            except OSError as error:
                if error.errno not in _CANNOT_LINK:
                    raise
                self.copy_in(source, digest, executable=executable)

    def _settle(self, place: str) -> None:
        from concurrent.futures import ThreadPoolExecutor

        def work() -> None:
            try:
                _sync(place)
                os.utime(place, ns=SEAL_TIMES)
            finally:
                self._unsettled.pop(place, None)

        if self._pool is None:
            self._pool = ThreadPoolExecutor(2, thread_name_prefix="settle")
        self._settling.append(self._pool.submit(work))

    def settle(self) -> None:
        """Wait until all that was adopted is on the disk and sealed. Raises StoreError where it cannot be."""
        waiting, self._settling = self._settling, []
        for future in waiting:
            with explain_os_error("write an output to the disk", self.layout.root):
                future.result()

    def is_settling(self, facts: os.stat_result) -> bool:
        """Whether these are the facts of a blob that this process adopted and the disk has not confirmed."""
        return bool(self._unsettled) and facts.st_ino in self._unsettled.values()

    def copy_in(self, path: str | os.PathLike[str], digest: str, *, executable: bool = False) -> None:
        """Copy a file into the store (reflink where the filesystem can), leaving it as it is.

        The copy is hashed: StoreError when it is not `digest`, as the file changed meanwhile.
        """
        place = self.layout.blob(digest, executable)
        if self._sound(place, digest, None, executable):
            return
        with explain_os_error("copy a file into the store", self.layout.root):
            aside = self.layout.temporary()
            try:
                copy_file(path, aside)
                found = hash_file(aside)
                if found.digest != digest:
                    raise StoreError(
                        "the file changed while it was read", where=os.fspath(path), hint="build again"
                    )
                if found.size >= _SYNC_FROM:
                    _sync(aside)
                os.chmod(aside, 0o555 if executable else 0o444)
                os.utime(aside, ns=SEAL_TIMES)
                self._link(aside, place, digest, found.size, executable)
            finally:
                _forget(aside)

    def link_out(self, digest: str, dest: str | os.PathLike[str], *, executable: bool = False) -> None:
        """Make dest, which must not exist, a read-only link to a blob; a copy where no link can be.

        Raises MissingBlob. Checks that the blob is there, not its bytes: ask `has` first.
        """
        place = self.layout.blob(digest, executable)
        for attempt in (0, 1):
            try:
                os.link(place, dest)
                return
            except FileNotFoundError:
                if attempt or not os.path.isdir(os.path.dirname(os.path.abspath(dest))):
                    raise MissingBlob(digest, self.layout.text) from None
                self._other_form(digest, executable)
            except OSError as error:
                with explain_os_error("link an output", dest):
                    if error.errno not in _CANNOT_LINK:
                        raise
                    copy_file(place, dest)
                    os.chmod(dest, 0o555 if executable else 0o444)
                    os.utime(dest, ns=SEAL_TIMES)
                    return

    def _other_form(self, digest: str, executable: bool) -> None:
        """Make the form of a blob that is lacking from the one that is there."""
        other = self.layout.blob(digest, not executable)
        if not self._sound(other, digest, None, not executable):
            raise MissingBlob(digest, self.layout.text)
        self.copy_in(other, digest, executable=executable)

    # inside

    def _sound(
        self, place: str, digest: str, size: int | None, executable: bool, *, trust_seal: bool = True
    ) -> bool:
        """Whether the file at place is the blob; if it is something else it goes to quarantine."""
        try:
            facts = os.lstat(place)
        except (FileNotFoundError, NotADirectoryError):
            return False
        right_size = facts.st_size == size if size is not None else facts.st_size > 0 or digest == EMPTY
        if stat.S_ISREG(facts.st_mode):
            right_mode = bool(facts.st_mode & stat.S_IXUSR) == executable
            kept = is_sealed(facts) or self._unsettled.get(place) == facts.st_ino
            if trust_seal and right_size and right_mode and kept:
                return True
            if right_size:
                try:
                    fd = open_regular(place)
                except OSError:
                    return False
                try:
                    if hash_whole(fd).digest == digest:
                        self._seal(fd, executable)
                        return True
                except OSError:  # a bad sector: not readable is not there
                    pass
                finally:
                    os.close(fd)
        self._set_aside(place, facts)
        return False

    @staticmethod
    def _seal(fd: int, executable: bool) -> None:
        try:
            os.fchmod(fd, 0o555 if executable else 0o444)
            os.utime(fd, ns=SEAL_TIMES)
        except OSError:  # a read-only store: it is hashed again next time, no more
            pass

    def _set_aside(self, place: str, judged: os.stat_result) -> None:
        """Move what was judged damaged to quarantine/, unless a sound one has taken its place."""
        target = f"{self.layout.text}/quarantine/{os.path.basename(place)}-{os.urandom(4).hex()}"
        try:
            now = os.lstat(place)
            if (now.st_ino, now.st_ctime_ns) != (judged.st_ino, judged.st_ctime_ns):
                return
            try:
                os.rename(place, target)
            except FileNotFoundError:
                make_parent(target)
                os.rename(place, target)
        except OSError:  # gone already, or a read-only store: a miss all the same
            pass

    def _link(self, source: str, place: str, digest: str, size: int, executable: bool) -> bool:
        """Link source to place. True if its inode became the blob, False if a sound blob was there."""
        for _ in range(100):
            try:
                os.link(source, place)
                return True
            except FileNotFoundError:
                make_parent(place)
            except FileExistsError:
                if self._sound(place, digest, size, executable):
                    _renew(place)
                    return False
        raise StoreError("a damaged blob cannot be replaced", where=place, hint="remove it by hand")

    def _relink(self, place: str, path: str) -> None:
        """Replace path by a link to the blob, so that equal bytes occupy the disk once."""
        aside = f"{path}.{os.urandom(4).hex()}"
        try:
            os.link(place, aside)
        except OSError:  # EMLINK and the like: the bytes are the same, only space is lost
            return
        try:
            os.rename(aside, path)
        finally:
            _forget(aside)


def _same_inode(place: str, facts: os.stat_result) -> bool:
    try:
        other = os.lstat(place)
    except FileNotFoundError:
        return False
    return (other.st_ino, other.st_dev) == (facts.st_ino, facts.st_dev)


def _sync(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fdatasync(fd)
    finally:
        os.close(fd)


def _forget(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def _renew(place: str) -> None:
    """Make a blob that is stored again as young as a new one: a gc that has begun spares those."""
    try:
        os.utime(place, ns=SEAL_TIMES)
    except OSError:  # a read-only store has no gc
        pass
