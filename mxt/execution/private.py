"""Looks for paths of this machine in what an action made: they would differ on another one."""

from __future__ import annotations

import mmap
import os
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from mxt.action.action import Action
from mxt.errors import ActionError
from mxt.execution.prepare import Layout

_MIN = 6
_HEAD = 8192
# from here on grep looks first: 3 GB/s for all texts together, where Python has 1 GB/s for each
_LARGE = 16 << 20
# 1 GiB: a file that is one line makes grep read all of it
_GREP = ["/usr/bin/prlimit", "--as=1073741824", "grep"]


class PrivateSearch:
    """Begun at once; small files are done then, large ones while their bytes are hashed.

    Texts shorter than 6 bytes are looked for in text files only: weights hold every short sequence.
    Raises ActionError where an output contains one, at once or in `finish`.
    """

    def __init__(self, action: Action, layout: Layout) -> None:
        self._outputs = layout.outputs
        needles = [os.fsencode(text) for text in layout.private if len(text) > 1]
        self._large: list[tuple[Path, Future[bytes | None]]] = []
        self._pool: ThreadPoolExecutor | None = None
        try:
            for output in action.outputs:
                for path in _files(layout.outputs / output.path):
                    if path.is_symlink():
                        continue
                    if path.stat().st_size < _LARGE:
                        self._judge(path, _contains(path, needles))
                        continue
                    if self._pool is None:
                        self._pool = ThreadPoolExecutor(2, thread_name_prefix="private")
                    self._large.append((path, self._pool.submit(_contains_large, path, needles)))
        except BaseException:
            self._end()
            raise

    def finish(self) -> None:
        """Wait for the large files."""
        try:
            for path, future in self._large:
                self._judge(path, future.result())
        finally:
            self._end()

    def _end(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def _judge(self, path: Path, found: bytes | None) -> None:
        if found is not None:
            raise ActionError(
                f"output '{path.relative_to(self._outputs)}' contains the path '{os.fsdecode(found)}'",
                hint="it would differ on another machine; write paths relative to the working folder",
            )


def _files(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    for folder, _, names in os.walk(path):
        for name in names:
            yield Path(folder, name)


def _contains_large(path: Path, needles: Sequence[bytes]) -> bytes | None:
    with path.open("rb") as file:
        binary = b"\0" in file.read(_HEAD)
        command = [*_GREP, "-qaF"]
        if binary:
            command.append("-z")  # lines end with NUL: binary files have many, and few of other ends
        for needle in needles:
            if not (binary and len(needle) < _MIN):
                command += ["-e", os.fsdecode(needle)]
        file.seek(0)
        try:
            done = subprocess.run(
                command,
                stdin=file,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
                check=False,
            )
        except OSError:
            return _contains(path, needles)
    # found, or given up: the exact search says which, and whether it is a path or the beginning of another
    return None if done.returncode == 1 else _contains(path, needles)


def _contains(path: Path, needles: Sequence[bytes]) -> bytes | None:
    size = path.stat().st_size
    if size == 0:
        return None
    with path.open("rb") as file:
        if size <= 1 << 16:
            data: Any = file.read()
            return _search(data, needles, data[:_HEAD])
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _search(data, needles, data[:_HEAD])


def _search(data: Any, needles: Sequence[bytes], head: bytes) -> bytes | None:
    binary = b"\0" in head
    for needle in needles:
        if binary and len(needle) < _MIN:
            continue
        at = data.find(needle)
        while at >= 0:
            after = data[at + len(needle) : at + len(needle) + 1]
            # "/home/ann" inside "/home/anna" is somebody else's path
            if not (after.isalnum() or after in (b"_", b"-")):
                return needle
            at = data.find(needle, at + 1)
    return None
