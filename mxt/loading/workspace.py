"""The workspace: its root, its store, and the packages in it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mxt.errors import UsageError
from mxt.loading.label import quoted
from mxt.loading.reads import Stat, stat_of
from mxt.loading.root import MXTBUILD, begins_workspace, search_root

STORE = "cache"
OUTPUTS = "mxt-out"
# never packages, never matched: at the root, and at any depth
ROOT_ONLY_EXCLUDED = frozenset({STORE, OUTPUTS})
EXCLUDED = frozenset({".git", ".venv", ".mxt"})  # .mxt: where a workspace's wrapper keeps mxt itself


@dataclass(frozen=True, slots=True)
class Workspace:
    """root: the real path of the folder that labels are relative to. store: where results are kept."""

    root: Path
    store: Path

    def excluded(self, path: str) -> bool:
        """Whether path, relative to the root, lies where packages and sources never are."""
        parts = path.split("/")
        if parts[0] in ROOT_ONLY_EXCLUDED or not EXCLUDED.isdisjoint(parts):
            return True
        store = os.path.relpath(self.store, self.root)
        return store != "." and (path == store or path.startswith(store + "/"))

    def package_of(self, directory: Path) -> str:
        """The package that directory lies in: the nearest folder above with a MXTBUILD ("" for the root)."""
        try:
            relative = Path(os.path.realpath(directory)).relative_to(self.root)
        except ValueError:
            return ""
        while relative.parts and not (self.root / relative / MXTBUILD).is_file():
            relative = relative.parent
        return "" if not relative.parts else relative.as_posix()

    def is_package(self, package: str) -> bool:
        """Whether package is a folder with a MXTBUILD outside cache/, mxt-out/, .git and .venv."""
        if package and self.excluded(package):
            return False
        return (self.root / package / MXTBUILD).is_file()


@dataclass(frozen=True, slots=True)
class Discovery:
    """The packages below a folder, with every folder and file whose change could change that list."""

    packages: list[str]
    directories: dict[str, Stat | None]
    files: dict[str, Stat | None]


def find_workspace(
    start: Path | None = None,
    *,
    root: str | None = None,
    store: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Workspace:
    """The workspace of start (default: the current folder).

    root and store are the --workspace and --store options; without them MXT_WORKSPACE and MXT_STORE.
    Raises UsageError where there is none.
    """
    env = os.environ if environ is None else environ
    here = _current_folder() if start is None else start
    explicit = root if root is not None else env.get("MXT_WORKSPACE") or None
    if explicit is not None:
        option = "--workspace" if root is not None else "MXT_WORKSPACE"
        found = _explicit_root(here / explicit, option)
    else:
        found = _search_root(Path(os.path.realpath(here)))
    chosen = store if store is not None else env.get("MXT_STORE") or None
    if chosen is None:
        path = found / STORE
    else:
        # relative to where the user stands, as any path on a command line
        path = Path(os.path.abspath(here / os.path.expanduser(chosen)))
        if path.exists() and not path.is_dir():
            option = "--store" if store is not None else "MXT_STORE"
            raise UsageError(
                f"{option} {quoted(chosen)} is not a folder", hint="name a folder, or one to be made"
            )
        if Path(os.path.realpath(path)) == found:
            raise UsageError(
                f"the store {quoted(chosen)} is the workspace itself", hint="name a folder of its own"
            )
    return Workspace(found, path)


def discover(workspace: Workspace, below: str = "") -> Discovery:
    """All packages in the folder `below` and under it, sorted; links are not followed.

    A folder whose MXTBUILD begins with `workspace(` is another workspace and is passed over.
    """
    packages: list[str] = []
    directories: dict[str, Stat | None] = {}
    files: dict[str, Stat | None] = {}
    root = str(workspace.root)
    waiting = [below]
    while waiting:
        relative = waiting.pop()
        full = os.path.join(root, relative) if relative else root
        directories[relative or "."] = stat_of(full)
        try:
            entries = list(os.scandir(full))
        except FileNotFoundError:
            continue
        except OSError as problem:
            raise UsageError(
                f"cannot list the folder: {problem.strerror}",
                where=relative or root,
                hint="make it readable, or move it out of the workspace",
            ) from None
        children: list[str] = []
        nested = False
        for entry in entries:
            path = f"{relative}/{entry.name}" if relative else entry.name
            if entry.name == MXTBUILD and entry.is_file():
                if relative:
                    files[path] = stat_of(entry.path)
                    nested = begins_workspace(entry.path)
                if not nested:
                    packages.append(relative)
            elif entry.is_dir(follow_symlinks=False) and not workspace.excluded(path):
                children.append(path)
        if not nested:
            waiting += children
    return Discovery(sorted(packages), directories, files)


def _current_folder() -> Path:
    try:
        return Path.cwd()
    except OSError:
        raise UsageError("the current folder no longer exists", hint="change into a workspace") from None


def _explicit_root(path: Path, option: str) -> Path:
    real = Path(os.path.realpath(os.path.expanduser(path)))
    if not real.is_dir():
        raise UsageError(f"{option} {quoted(str(path))} is not a folder")
    if not (real / MXTBUILD).is_file():
        raise UsageError(
            f"{option} {quoted(str(path))} has no {MXTBUILD}",
            hint=f"make one there; an empty file will do: touch {path / MXTBUILD}",
        )
    return real


def _search_root(start: Path) -> Path:
    found = search_root(str(start))
    if found is None:
        raise UsageError(
            f"no {MXTBUILD} in {quoted(str(start))} or above it, so this is not a workspace",
            hint=f"make an empty one in your project's folder (touch {MXTBUILD}), or pass --workspace",
        )
    return Path(found)
