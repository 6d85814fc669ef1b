"""Lays files out in a folder that may hold others: all or nothing, and never over what is there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from mxt.errors import UsageError
from mxt.scaffold.workspace_files import EXECUTABLE

Content = str | Path
# of these the user's own stays: the first gets what it lacks, the second is left alone
_IGNORE, _README = ".gitignore", "README.md"
_SHOWN = 10


def write_files(folder: Path, files: Mapping[str, Content]) -> list[str]:
    """Write what is not there yet; returns those paths. A Path is copied, with shared blocks if possible.

    Raises UsageError, having written nothing, where anything else is in the way.
    """
    wanted = dict(files)
    if os.path.lexists(folder / _README):
        wanted.pop(_README, None)
    lines = _missing_lines(folder / _IGNORE, str(wanted.pop(_IGNORE, "")))
    same = {path for path, content in wanted.items() if _is_same(folder / path, content)}
    wanted = {path: content for path, content in wanted.items() if path not in same}
    _refuse_what_is_in_the_way(folder, wanted)
    written: list[str] = []
    made: list[Path] = []
    try:
        for path, content in wanted.items():
            _make_parents(folder / path, made)
            written.append(path)
            _write(folder / path, content, 0o755 if path in EXECUTABLE else 0o644)
        if lines:
            _make_parents(folder / _IGNORE, made)
            _append(folder / _IGNORE, lines)
            written.append(_IGNORE)
    except BaseException as problem:
        for path in written:
            if path != _IGNORE:
                with contextlib.suppress(OSError):
                    (folder / path).unlink()
        for place in reversed(made):
            with contextlib.suppress(OSError):
                place.rmdir()
        if isinstance(problem, OSError):
            raise UsageError(
                f"cannot write the workspace: {(problem.strerror or str(problem)).lower()}",
                where=str(problem.filename or folder),
                hint="nothing was left behind; choose a folder that you may write to, on a disk with room",
            ) from None
        raise
    return written


def _refuse_what_is_in_the_way(folder: Path, wanted: Mapping[str, Content]) -> None:
    found: dict[str, None] = {}
    for path in wanted:
        parts = path.split("/")
        for depth in range(1, len(parts)):
            above = folder.joinpath(*parts[:depth])
            if os.path.lexists(above) and not above.is_dir():
                found["/".join(parts[:depth])] = None
                break
        else:
            if os.path.lexists(folder / path):
                found[path] = None
    if found:
        listed = list(found)
        more = f"\n    and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
        raise UsageError(
            "these are in the way, and nothing is overwritten; nothing was written",
            where=str(folder),
            excerpt="\n".join(f"    {path}" for path in listed[:_SHOWN]) + more,
            hint="name another folder, or move them away",
        )


def _is_same(path: Path, content: Content) -> bool:
    try:
        if path.is_symlink() or not path.is_file():
            return False
        there = path.read_bytes()
        return there == (content.encode() if isinstance(content, str) else content.read_bytes())
    except OSError:
        return False


def _missing_lines(path: Path, text: str) -> list[str]:
    """Lines of `text` that an ignore file does not have yet."""
    try:
        there = {line.strip().strip("/") for line in path.read_text("utf-8", "replace").splitlines()}
    except OSError:
        there = set()
    return [line for line in text.splitlines() if line.strip("/") not in there]


def _append(path: Path, lines: list[str]) -> None:
    old = path.read_bytes() if path.exists() else b""
    with path.open("ab") as file:
        file.write(
            (b"\n" if old and not old.endswith(b"\n") else b"") + "".join(f"{x}\n" for x in lines).encode()
        )


def _make_parents(path: Path, made: list[Path]) -> None:
    missing = []
    place = path.parent
    while not place.exists():
        missing.append(place)
        place = place.parent
    for place in reversed(missing):
        place.mkdir()
        made.append(place)


def _write(path: Path, content: Content, mode: int) -> None:
    if isinstance(content, str):
        with path.open("x", encoding="utf-8", newline="\n") as file:
            file.write(content)
    else:
        from mxt.store.copy_file import copy_file

        copy_file(content, path)
    path.chmod(mode)
