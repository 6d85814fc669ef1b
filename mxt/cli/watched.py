"""What a watch looks at, and how it sees that something changed: calmly, and only once it is whole."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mxt.loading.reads import Stat, stat_of

SOON_S = 0.2  # the shortest time between two looks
LATE_S = 10.0  # the longest
SHARE = 20  # looking takes at most this part of the time
QUIET_S = 0.1  # so long nothing may change any more before a build begins
GONE_S = 0.5  # the same where a file is gone: editors that write anew come back with it
MOST = 500_000  # entries of a workspace that is watched as a whole
_SKIPPED = {".git", ".venv", "__pycache__", "node_modules"}


class Watched:
    """paths: relative to root (or absolute) -> stat tuple, None where nothing is.

    links: below root -> target.
    """

    def __init__(self, root: Path, paths: Mapping[str, Any], links: Mapping[str, str]) -> None:
        self._root = str(root)
        self._seen: dict[str, Stat | None] = {p: None if s is None else tuple(s) for p, s in paths.items()}
        self._links = dict(links)
        # what folders listed when they still had the stat tuple that the build saw
        self._names = {p: self._listing(p) for p, s in self._seen.items() if s and self._is_folder(p, s)}

    def __len__(self) -> int:
        return len(self._seen)

    def wait(self, sleep: Callable[[float], object] = time.sleep) -> list[str]:
        """Return once something changed and has come to rest: its paths, new and gone ones said so."""
        while True:
            began = time.monotonic()
            changed = self._changed(self._seen)
            if changed or self._broken_links():
                changed = self._settle(changed, sleep)
                said = self._said(changed) + [f"{link} (output)" for link in self._broken_links()]
                if said:
                    return list(dict.fromkeys(said))
            cost = time.monotonic() - began
            sleep(min(LATE_S, max(SOON_S, cost * SHARE)))

    # ---- looking ----------------------------------------------------------------------------------

    def _stat(self, path: str) -> Stat | None:
        return stat_of(os.path.join(self._root, path))

    def _changed(self, paths: Mapping[str, Stat | None]) -> dict[str, Stat | None]:
        """Path -> what it is now, for those that are not as they were."""
        found = {}
        for path, seen in paths.items():
            now = self._stat(path)
            if now != seen:
                found[path] = now
        return found

    def _settle(
        self, changed: dict[str, Stat | None], sleep: Callable[[float], object]
    ) -> dict[str, Stat | None]:
        """Wait until nothing moves: a save is often several steps, and so is a checkout."""
        while True:
            gone = any(now is None for now in changed.values())
            sleep(GONE_S if gone else QUIET_S)
            again = self._changed(self._seen)
            if again == changed:
                return changed
            changed = again

    def _said(self, changed: Mapping[str, Stat | None]) -> list[str]:
        """Changes in words; folders by what came and went in them, if anything that counts did."""
        said = []
        for path, now in changed.items():
            before = self._seen[path]
            if path in self._names and now is not None and self._is_folder(path, now):
                names = self._listing(path)
                came, went = sorted(names - self._names[path]), sorted(self._names[path] - names)
                said += [f"{_join(path, name)} (new)" for name in came if _join(path, name) not in changed]
                said += [f"{_join(path, name)} (gone)" for name in went if _join(path, name) not in changed]
                self._seen[path], self._names[path] = now, names
            elif now is None:
                said.append(f"{path} (gone)")
            else:
                said.append(f"{path} (new)" if before is None else path)
        return said

    def _broken_links(self) -> list[str]:
        broken = []
        for link, target in self._links.items():
            try:
                if os.readlink(os.path.join(self._root, link)) == target:
                    continue
            except OSError:
                pass
            broken.append(link)
        return broken

    def _is_folder(self, path: str, _: Stat) -> bool:
        return os.path.isdir(os.path.join(self._root, path))

    def _listing(self, path: str) -> frozenset[str]:
        """Names in a folder, without what editors put there for a moment."""
        try:
            names: Sequence[str] = os.listdir(os.path.join(self._root, path))
        except OSError:
            names = ()
        return frozenset(name for name in names if not passing(name))


def passing(name: str) -> bool:
    """Whether a file of that name is an editor's own: a swap file, a lock, a backup, a probe."""
    return (
        name.endswith(("~", ".swp", ".swo", ".swx", ".part", "___jb_tmp___", "___jb_old___"))
        or name.startswith((".#", ".goutputstream-", ".~lock."))
        or (name.startswith("#") and name.endswith("#"))
        or name == "4913"
    )


def whole_workspace(root: Path, without: Sequence[Path]) -> dict[str, Stat | None]:
    """Every file and folder below root but those folders, with its stat tuple, at most MOST."""
    skipped = {os.path.realpath(path) for path in without}
    found: dict[str, Stat | None] = {}
    for folder, folders, names in os.walk(root):
        folders[:] = [
            n
            for n in folders
            if n not in _SKIPPED and os.path.realpath(os.path.join(folder, n)) not in skipped
        ]
        if len(found) > MOST:
            break
        for name in (".", *names):
            if not passing(name):
                path = os.path.normpath(os.path.join(folder, name))
                found[os.path.relpath(path, root)] = stat_of(path)
    return found


def _join(folder: str, name: str) -> str:
    return name if folder in ("", ".") else f"{folder}/{name}"
