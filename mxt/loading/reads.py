"""What loading looked at, with stat tuples, so that a later build can tell that nothing changed."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

# size, mtime_ns, ctime_ns, inode, device
Stat = tuple[int, int, int, int, int]


def stat_of(path: str | os.PathLike[str]) -> Stat | None:
    """The stat tuple of path, links followed; None where nothing is there."""
    try:
        s = os.stat(path)
    except (OSError, ValueError):
        return None
    return (s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_ino, s.st_dev)


@dataclass(slots=True)
class GlobRead:
    """One glob() call: what it asked, what it found, and the folders it listed."""

    package: str
    include: list[str]
    exclude: list[str]
    result: list[str]
    directories: dict[str, Stat | None]


@dataclass(slots=True)
class Reads:
    """Everything that one package's loading depended on.

    Paths are relative to the workspace root, or absolute outside it, so that os.path.join(root, path)
    is right for both. None stands for "was not there". The stat is taken before the content is read:
    an edit in between shows as a change.
    """

    files: dict[str, Stat | None] = field(default_factory=dict)
    directories: dict[str, Stat | None] = field(default_factory=dict)
    globs: list[GlobRead] = field(default_factory=list)

    def everything(self) -> dict[str, Stat | None]:
        """All paths with their stat tuples: loading again is needless while these hold."""
        paths = {**self.files, **self.directories}
        for glob in self.globs:
            paths.update(glob.directories)
        return paths

    def unchanged(self, root: str | os.PathLike[str]) -> bool:
        """Whether every path still has the stat tuple that loading saw."""
        return all(stat_of(os.path.join(root, path)) == seen for path, seen in self.everything().items())
