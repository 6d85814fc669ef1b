"""Where each action's attempts left their logs, also when they failed: for `mxt log`.

One file of lines, `<digest of the action's name> <folder of its evidence>`, that only grows while builds
run: a write of one line costs less than making a file, and SIGKILL leaves whole lines.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from blake3 import blake3

from mxt.action.action import ActionId

_COMPACT_FROM = 4 << 20  # bytes


class Attempts:
    """Notes attempts in the file at `path`. The folders are kept relative, so that a store may be moved."""

    def __init__(self, path: Path) -> None:
        self._folder = os.path.dirname(path)
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        try:
            self._fd = os.open(path, flags, 0o644)
        except FileNotFoundError:
            os.makedirs(self._folder, exist_ok=True)
            self._fd = os.open(path, flags, 0o644)
        self._compact()
        fcntl.flock(self._fd, fcntl.LOCK_SH)

    def note(self, identity: ActionId, evidence: Path) -> None:
        """Remember an attempt."""
        line = f"{_name(identity)} {os.path.relpath(evidence, self._folder)}\n"
        os.write(self._fd, line.encode("utf-8", "surrogateescape"))

    def close(self) -> None:
        os.close(self._fd)

    def _compact(self) -> None:
        """Keep each action's last line, once the file is large and no other build writes to it."""
        if os.fstat(self._fd).st_size < _COMPACT_FROM:
            return
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        last: dict[bytes, bytes] = {}
        with open(self._fd, "rb", closefd=False) as file:
            for line in file:
                last[line[:32]] = line
        os.ftruncate(self._fd, 0)
        os.write(self._fd, b"".join(last.values()))


def _name(identity: ActionId) -> str:
    return blake3(str(identity).encode("utf-8", "surrogateescape")).hexdigest(length=16)


def read_attempt(path: Path, identity: ActionId) -> Path | None:
    """The evidence folder of the last attempt that the file at `path` knows."""
    needle = _name(identity).encode() + b" "
    try:
        data = path.read_bytes()
    except OSError:
        return None
    begin = data.rfind(b"\n" + needle) + 1
    if not begin and not data.startswith(needle):
        return None
    text = os.fsdecode(data[begin + len(needle) :].partition(b"\n")[0])
    if len(parts := text.split("/")) < 3 or parts[-3] != "evidence" or "\0" in text or len(text) > 1000:
        return None  # damaged
    return Path(os.path.normpath(path.parent / text))
