"""out/<key>/ from a realisation, and the symlinks in mxt-out/ that lead there."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from mxt.errors import StoreError
from mxt.store.cas import Cas
from mxt.store.digest import hash_bytes
from mxt.store.layout import Layout, is_sealed, make_parent, write_atomic
from mxt.store.os_errors import explain_os_error
from mxt.store.realisation import Output, Realisation
from mxt.store.tree import materialise_tree, walk_tree
from mxt.store.tree_object import Entry


class Outputs:
    """The materialised outputs of one store: linked from the CAS, read-only."""

    def __init__(self, layout: Layout, cas: Cas) -> None:
        self.layout = layout
        self.cas = cas
        self._registered: set[str] = set()
        self._real_folders: dict[str, str] = {}

    def materialise(self, realisation: Realisation) -> Path:
        """Make out/<key>/, whole or not at all; one that is there is checked and mended.

        The blobs must be present (see ActionCache.outputs_present). Raises MissingBlob, StoreError.
        """
        place = self.layout.out(realisation.key)
        with explain_os_error("write outputs", place):
            if os.path.lexists(place):
                self._mend(place, realisation)
                return place
            aside = self.layout.temporary()
            try:
                os.mkdir(aside)
                for output in realisation.outputs.values():
                    self._place(output, f"{aside}/{output.path}")
                try:
                    os.rename(aside, place)
                except FileNotFoundError:
                    make_parent(place)
                    os.rename(aside, place)
            except OSError:
                if not os.path.isdir(place):
                    raise
                self._mend(place, realisation)  # another build was first
            finally:
                if os.path.lexists(aside):
                    remove_tree(aside)
        return place

    def take_folder(self, folder: str | os.PathLike[str], realisation: Realisation) -> Path:
        """As `materialise`, where `folder` holds just these outputs as links to their blobs: it is moved.

        A folder that holds other folders, or that is on another file system, is left and made anew.
        """
        place = self.layout.out(realisation.key)
        simple = all(o.kind == "file" and "/" not in o.path for o in realisation.outputs.values())
        if simple and not os.path.lexists(place):
            with explain_os_error("write outputs", place):
                os.chmod(folder, 0o755)  # noqa: S103 - a folder that everybody may list
                for attempt in (0, 1):
                    try:
                        os.rename(folder, place)
                        return place
                    except FileNotFoundError:
                        if not attempt:
                            make_parent(place)
                    except OSError:  # another build was first
                        break
        return self.materialise(realisation)

    def intact(self, realisation: Realisation) -> bool:
        """Whether out/<key>/ holds exactly the outputs as mxt left them: names, kinds, sizes, seals."""
        place = self.layout.out(realisation.key)
        try:
            return not any(True for _ in self._faults(place, realisation))
        except (OSError, StoreError):
            return False

    def _place(self, output: Output, path: str) -> None:
        if "/" in output.path:
            make_parent(path)
        if output.kind == "dir":
            materialise_tree(self.cas, output.digest, path)
        else:
            self.cas.link_out(output.digest, path, executable=output.executable)

    def _mend(self, place: Path, realisation: Realisation) -> None:
        # twice: what lies in a folder that was no folder can only be judged once that is made
        for _ in (0, 1):
            faults = list(self._faults(place, realisation))
            for path, entry in faults:
                self._mend_one(path, entry)
            os.makedirs(place, exist_ok=True)
            if not faults:
                break

    def _mend_one(self, path: str, entry: Entry | None) -> None:
        self._discard(path)
        if entry is None:
            return
        make_parent(path)
        aside = _aside(path)
        if entry.kind == "dir":
            materialise_tree(self.cas, entry.digest, aside)
        elif entry.kind == "symlink":
            os.symlink(entry.target, aside)
        else:
            self.cas.link_out(entry.digest, aside, executable=entry.executable)
        os.rename(aside, path)

    def set_aside(self, path: str) -> None:
        """Take a damaged output away, so that it is made anew; what cannot be moved stays."""
        with contextlib.suppress(OSError):
            self._discard(path)

    def _discard(self, path: str) -> None:
        """Take away what does not belong; somebody's work may be in it, so it goes to quarantine."""
        if os.path.lexists(path):
            name = os.fsdecode(os.fsencode(os.path.basename(path))[:100])
            target = f"{self.layout.text}/quarantine/out-{name}-{os.urandom(4).hex()}"
            make_parent(target)
            os.rename(path, target)

    def _faults(self, place: Path, realisation: Realisation) -> Iterator[tuple[str, Entry | None]]:
        """(path, what belongs there or None) of everything in out/<key>/ that is not as it should be."""
        try:
            facts = os.lstat(place)
        except FileNotFoundError:
            facts = None
        if facts is None or not stat.S_ISDIR(facts.st_mode):
            yield str(place), None
        expected: dict[str, Entry] = {}
        for output in realisation.outputs.values():
            entry = Entry("", output.kind, output.digest, output.size, output.executable)
            parts = output.path.split("/")
            for count in range(1, len(parts)):
                expected.setdefault("/".join(parts[:count]), Entry("", "parent"))
            expected[output.path] = entry
            if output.kind == "dir":
                for below, inner in walk_tree(self.cas, output.digest):
                    expected[f"{output.path}/{below}"] = inner
        broken: set[str] = set()
        for relative, entry in expected.items():
            path = f"{place}/{relative}"
            parent = relative.rpartition("/")[0]
            if parent in broken:  # its folder is made anew, with everything in it
                broken.add(relative)
                continue
            if not self._as_expected(path, entry):
                if entry.kind == "dir":
                    broken.add(relative)
                yield path, (entry if entry.kind != "parent" else None)
        yield from self._strangers(str(place), expected)

    def _as_expected(self, path: str, entry: Entry) -> bool:
        try:
            facts = os.lstat(path)
        except OSError:
            return False
        if entry.kind in ("dir", "parent"):
            return stat.S_ISDIR(facts.st_mode)
        if entry.kind == "symlink":
            return stat.S_ISLNK(facts.st_mode) and os.readlink(path) == entry.target
        return (
            stat.S_ISREG(facts.st_mode)
            and facts.st_size == entry.size
            and (is_sealed(facts) or self.cas.is_settling(facts))
            and bool(facts.st_mode & stat.S_IXUSR) == entry.executable
        )

    @staticmethod
    def _strangers(place: str, expected: Mapping[str, Entry]) -> Iterator[tuple[str, None]]:
        folders = [""]
        while folders:
            folder = folders.pop()
            try:
                names = os.listdir(f"{place}/{folder}")
            except OSError:
                continue
            for name in names:
                relative = f"{folder}/{name}" if folder else name
                entry = expected.get(relative)
                if entry is None:
                    yield f"{place}/{relative}", None
                elif entry.kind in ("dir", "parent"):
                    folders.append(relative)

    # mxt-out

    def link_target(self, link: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
        """Make link a relative symlink to target (out/<key>, or something in it), replaced in one step.

        A folder that mxt made in its place (a target that had several actions) gives way.
        """
        path = os.fspath(link)
        parent = os.path.dirname(os.path.abspath(path))
        # a store may be reached through a symlink; the link must be right seen from where it really lies
        text = os.path.relpath(self._real(os.fspath(target)), self._real_folder(parent))
        with explain_os_error("link an output", path):
            with contextlib.suppress(OSError):
                if os.readlink(path) == text:
                    return
            os.makedirs(parent, exist_ok=True)
            try:
                self._replace_by_link(path, text, self.layout.temporary())
            except OSError as error:
                if error.errno != errno.EXDEV:  # the store is on another filesystem
                    raise
                self._replace_by_link(path, text, _aside(path))

    def _real(self, path: str) -> str:
        """As os.path.realpath, which looks at every folder on the way: a build links thousands in one."""
        path = os.path.abspath(path)
        if os.path.islink(path):
            return os.path.realpath(path)
        return f"{self._real_folder(os.path.dirname(path))}/{os.path.basename(path)}"

    def _real_folder(self, folder: str) -> str:
        found = self._real_folders.get(folder)
        if found is None:
            found = self._real_folders[folder] = os.path.realpath(folder)
        return found

    @staticmethod
    def _replace_by_link(path: str, text: str, aside: str) -> None:
        os.symlink(text, aside)
        try:
            try:
                os.rename(aside, path)
            except OSError as error:
                if error.errno == errno.EXDEV or not os.path.isdir(path) or os.path.islink(path):
                    raise
                remove_tree(path)
                os.rename(aside, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(aside)
            raise

    def register_root(self, folder: str | os.PathLike[str]) -> None:
        """Make a workspace's mxt-out a root for gc. Kept relative to the store, so both may move together."""
        real = os.path.realpath(folder)
        text = os.path.relpath(real, os.path.realpath(self.layout.root))
        if text in self._registered:
            return
        self._registered.add(text)
        place = self.layout.state / "roots" / hash_bytes(os.fsencode(text))
        if not place.exists():
            with explain_os_error("register a workspace with the store", place):
                write_atomic(self.layout, place, os.fsencode(text))


def _aside(path: str) -> str:
    """A fresh name beside path, short: the name itself may be as long as a name can be."""
    return f"{os.path.dirname(os.path.abspath(path))}/.mxt-{os.urandom(6).hex()}"


def remove_tree(path: str | os.PathLike[str]) -> None:
    """Remove a file, a symlink, or a folder with all in it; folders that forbid it are opened first."""
    import shutil
    import subprocess

    try:
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            os.unlink(path)
            return
        shutil.rmtree(path)
    except FileNotFoundError:
        return
    except PermissionError:
        os.chmod(path, 0o700)
        for place, folders, _ in os.walk(path):
            for name in folders:
                if not os.path.islink(inner := os.path.join(place, name)):
                    os.chmod(inner, 0o700)
        shutil.rmtree(path)
    except (RecursionError, OSError) as error:
        # nested deeper than Python's stack, or than any path can say; rm works from folder to folder
        if isinstance(error, OSError) and error.errno != errno.ENAMETOOLONG:
            raise
        subprocess.run(["/bin/rm", "-rf", "--", os.fspath(path)], check=False)
