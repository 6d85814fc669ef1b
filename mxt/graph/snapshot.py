"""The null build: what a finished build looked at, so that the next one can see that nothing changed.

A snapshot is no cache of results. It lists every path whose change could make any difference, with
the stat tuple it had, and the links that the build left in mxt-out. If all of it still holds, there
is nothing to do; if anything differs, the whole way is gone again and decides.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mxt.loading.reads import Stat

FORMAT = 1
# no file has these numbers, so a snapshot that holds them never matches
UNSURE: Stat = (-1, -1, -1, -1, -1)


@dataclass(frozen=True)
class Snapshot:
    """paths: relative to the root (or absolute) -> stat tuple, None for "not there".

    links: symbolic links below the root -> their target. summary: what to tell the user.
    """

    paths: Mapping[str, Stat | None]
    links: Mapping[str, str]
    summary: Mapping[str, object]


def unchanged(file: Path, root: str, engine: str) -> dict[str, object] | None:
    """The summary of the snapshot in `file` if everything it lists still holds, else None.

    engine: identity of mxt's own code; another one never matches. A damaged file is no snapshot.
    """
    try:
        data = json.loads(file.read_bytes())
        if data["format"] != FORMAT or data["engine"] != engine:
            return None
        prefix = root + os.sep
        stat = os.stat
        names: list[str] = data["names"]
        for name, seen in zip(names, data["stats"], strict=True):
            path = name if name.startswith("/") else prefix + name
            try:
                s = stat(path)
            except (OSError, ValueError):
                if seen is None:
                    continue
                return None
            if seen != [s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_ino, s.st_dev]:
                return None
        for link, target in data["links"].items():
            if os.readlink(prefix + link) != target:
                return None
        summary = data["summary"]
        return summary if isinstance(summary, dict) else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def write(file: Path, engine: str, snapshot: Snapshot) -> None:
    """Write aside and rename; a store that cannot be written costs the shortcut, nothing else."""
    aside = file.with_name(f"{file.name}.{os.getpid()}")
    data = {
        "format": FORMAT,
        "engine": engine,
        "names": list(snapshot.paths),
        "stats": list(snapshot.paths.values()),
        "links": dict(snapshot.links),
        "summary": dict(snapshot.summary),
    }
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        aside.write_text(json.dumps(data, separators=(",", ":")), encoding="utf-8")
        aside.replace(file)
    except OSError:
        aside.unlink(missing_ok=True)


def engine_identity() -> str:
    """Changes whenever a file of mxt or of its built-in rules does."""
    import mxt

    package = os.path.dirname(os.path.abspath(mxt.__file__))
    newest, count = 0, 0
    stack = [package, os.path.join(os.path.dirname(package), "rules")]
    while stack:
        try:
            entries = list(os.scandir(stack.pop()))
        except OSError:
            continue
        for entry in entries:
            if entry.name.endswith((".py", ".mxt")):
                s = entry.stat()
                newest = max(newest, s.st_ctime_ns)
                count += s.st_ino
            elif entry.is_dir(follow_symlinks=False) and entry.name != "__pycache__":
                stack.append(entry.path)
    return f"{mxt.__version__}:{newest}:{count}"
