"""Where everything lies in a store, and how a store comes into being."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

from mxt.errors import StoreError
from mxt.store.os_errors import explain_os_error

FORMAT = 1
FORMAT_TEXT = f"mxt store {FORMAT}\n"

# What mxt puts into a store gets this time as its mtime (1980-01-02: zip files begin in 1980). Any later
# write changes it, so one lstat shows whether a file is still as mxt left it: see `is_sealed`.
SEAL_NS = 315_619_200 * 1_000_000_000
SEAL_TIMES = (SEAL_NS, SEAL_NS)

_token = os.urandom(4).hex()
_counter = itertools.count()


class Layout:
    """The paths of one store. Nothing here touches the disk except `create` and `make_parent`."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(os.path.abspath(root))
        self.text = str(self.root)
        self._tmp = ""

    def blob(self, digest: str, executable: bool = False) -> str:
        """cas/ab/<digest>, with .x for the executable inode. Text, as this is the hot path."""
        return f"{self.text}/cas/{digest[:2]}/{digest}{'.x' if executable else ''}"

    def action(self, key: str) -> Path:
        """The folder of all realisations of an action key."""
        return Path(f"{self.text}/ac/{key[:2]}/{key}")

    def runs(self, key: str) -> Path:
        """The folder of all runs of an action key."""
        return Path(f"{self.text}/runs/{key[:2]}/{key}")

    def out(self, key: str) -> Path:
        """The folder where an action's outputs are materialised."""
        return Path(f"{self.text}/out/{key}")

    def evidence(self, key: str, run: str = "") -> Path:
        """The folder of a run's evidence, or of all runs of a key."""
        return Path(f"{self.text}/evidence/{key}/{run}")

    def progress(self, key: str) -> Path:
        """The folder of an unfinished action's checkpoints."""
        return self.root / "progress" / key

    def accelerants(self, key: str) -> Path:
        """The folder of files that only save time, by the key of the action that makes them."""
        return self.root / "accelerants" / key

    def links(self, digest: str) -> Path:
        """The folder of signed statements about a receipt."""
        return self.root / "links" / digest

    def lock(self, name: str) -> Path:
        return Path(f"{self.text}/locks/{name}.lock")

    @property
    def index(self) -> Path:
        return self.root / "index.sqlite"

    @property
    def state(self) -> Path:
        return self.root / "state"

    @property
    def leases(self) -> Path:
        return self.root / "leases"

    @property
    def tmp(self) -> Path:
        return self.root / "tmp"

    @property
    def quarantine(self) -> Path:
        return self.root / "quarantine"

    def temporary(self, suffix: str = "") -> str:
        """A fresh path in tmp/, unique across processes, containers and hosts; its folder was made.

        Begins with the process id, by which gc knows the leftovers of dead processes.
        """
        if not self._tmp:
            self._tmp = os.fspath(self.tmp)
            os.makedirs(self._tmp, exist_ok=True)
        return f"{self._tmp}/{os.getpid()}-{_token}-{next(_counter)}{suffix}"

    def create(self) -> None:
        """Make the store if there is none; refuse one that a newer mxt made. Cheap when it exists."""
        try:
            with open(f"{self.text}/format", encoding="utf-8") as file:
                text = file.read(100)
            if not text:  # a power cut right after the store was made
                raise FileNotFoundError
        except FileNotFoundError:
            self._create()
            return
        except OSError:
            with explain_os_error("open the store", self.root):
                raise
        if text != FORMAT_TEXT:
            raise StoreError(
                f"the store has format {text.strip()!r}, this mxt knows {FORMAT_TEXT.strip()!r}",
                where=self.text,
                hint="use the newer mxt that made it, or another store with --store",
            )

    def _create(self) -> None:
        with explain_os_error("create the store", self.root):
            os.makedirs(self.tmp, exist_ok=True)
            # blobs are large and never belong into a repository, also where nobody thought of it;
            # a README that the workspace ships stays visible
            ignore = f"{self.text}/.gitignore"
            if not os.path.lexists(ignore):
                write_atomic(self, ignore, b"*\n!README.md\n")
            write_atomic(self, f"{self.text}/format", FORMAT_TEXT.encode())


def make_parent(path: str | os.PathLike[str]) -> None:
    """Make the folder of path and all above it."""
    folder = os.path.dirname(path)
    try:
        os.mkdir(folder)  # mostly it is this one alone that is missing
    except FileNotFoundError:
        os.makedirs(folder, exist_ok=True)
    except FileExistsError:
        if not os.path.isdir(folder):
            raise


def write_atomic(layout: Layout, path: str | os.PathLike[str], data: bytes, *, mode: int = 0o644) -> None:
    """Write data aside and rename it to path: a reader sees the old bytes or the new, never a part."""
    aside = write_aside(layout, data, mode=mode)
    try:
        try:
            os.rename(aside, path)
        except FileNotFoundError:
            make_parent(path)
            os.rename(aside, path)
    except BaseException:
        os.unlink(aside)
        raise


def write_aside(layout: Layout, data: bytes, *, mode: int, sealed: bool = False) -> str:
    """Write data to a fresh file in tmp/ and return its path; leaves nothing behind on failure."""
    aside = layout.temporary()
    try:
        fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    except FileNotFoundError:
        make_parent(aside)
        fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
            os.fchmod(fd, mode)
            if sealed:
                os.utime(fd, ns=SEAL_TIMES)
        finally:
            os.close(fd)
    except BaseException:
        os.unlink(aside)
        raise
    return aside


def is_sealed(facts: os.stat_result) -> bool:
    """Whether a file's facts show that nobody wrote to it since mxt stored it."""
    return facts.st_mtime_ns == SEAL_NS
