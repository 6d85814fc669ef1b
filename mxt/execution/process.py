"""One running action: its process, its log, and the pipe on which it reports."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

from mxt.execution.orphans import adopt, mine
from mxt.execution.prepare import Layout
from mxt.execution.warden import MARK, end_orphans, kill_marked


class Process:
    """Started at once. pidfd becomes readable when it ends, reports (-1: never) when it speaks.

    The child leads its own session, so Ctrl-C in the terminal reaches mxt alone, which decides.
    As long as any of its processes lives, lock_fd is held and nobody else can take the key.
    mark: what its environment holds, so that all it started can be found (see warden.py).
    """

    def __init__(self, layout: Layout, log: Path, lock_fd: int | None, mark: str) -> None:
        if layout.sandbox == "none":
            adopt()
        self._container = mark if layout.sandbox in ("podman", "docker") else ""
        reader, writer = _channel(layout)
        log_fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o644)
        argv = layout.argv
        if layout.sandbox == "bubblewrap" and lock_fd is not None:
            # bubblewrap holds the lock until the last process inside is gone; the command cannot touch it
            argv = [argv[0], "--sync-fd", str(lock_fd), *argv[1:]]
        # a container's keeper bears no mark: it is to outlive mxt until the container is gone
        name = "MXT_CONTAINER_MARK" if self._container else MARK
        try:
            self._popen = subprocess.Popen(
                argv,
                env={**layout.env, name: mark, **({"MXT_REPORT_FD": str(writer)} if layout.reports else {})},
                cwd=layout.cwd,
                # the keeper sees by it that mxt has ended
                stdin=subprocess.PIPE if self._container else subprocess.DEVNULL,
                stdout=log_fd,
                stderr=subprocess.STDOUT,
                pass_fds=([writer] if layout.reports else []) + ([] if lock_fd is None else [lock_fd]),
                start_new_session=True,
                umask=0o022,
            )
        except BaseException:
            if layout.reports:
                os.close(reader)
            raise
        finally:
            if layout.reports:
                os.close(writer)
            os.close(log_fd)
        self.pid = self._popen.pid
        mine.add(self.pid)
        self.pidfd = os.pidfd_open(self.pid)
        self.reports = reader
        self.error: dict[str, str] | None = None
        self.crash = ""
        self.silent = not layout.reports  # nobody holds the other end (any more)
        self._buffer = b""
        # a sandbox ends with its first process and takes all others along
        self._mark = mark if layout.sandbox == "none" else ""

    def read_reports(self) -> list[dict[str, Any]]:
        """What the action has said since the last call; errors are kept in `error` and `crash`."""
        if self.reports < 0:
            return []
        for _ in range(64):  # whoever writes without end must not keep the scheduler here
            try:
                chunk = os.read(self.reports, 65536)
            except BlockingIOError:
                break
            if not chunk:
                self.silent = True
                break
            self._buffer += chunk
            if len(self._buffer) > 1 << 20:  # an action that writes garbage here gets no more of our memory
                self._buffer = b""
        *lines, self._buffer = self._buffer.split(b"\n")
        found = []
        for line in lines:
            try:
                message = json.loads(line)
            except ValueError:
                continue
            if not isinstance(message, dict):
                continue
            if isinstance(message.get("error"), dict):
                self.error = {k: str(v) for k, v in message["error"].items()}
            elif "crash" in message:
                self.crash = str(message["crash"])
            else:
                found.append(message)
        return found

    def finish(self) -> int:
        """Wait, sweep up what the process left running, release descriptors; the exit status."""
        status = self._popen.wait()
        if self._popen.stdin is not None:
            self._popen.stdin.close()
        self._signal(signal.SIGKILL)
        mine.discard(self.pid)
        if self._mark:
            end_orphans(self._mark)
        os.close(self.pidfd)
        if self.reports >= 0:
            os.close(self.reports)
        return status

    def kill(self, sign: signal.Signals) -> None:
        """Signal the whole process group; a container's keeper is never killed, as it has to end that."""
        if self._container:
            if sign == signal.SIGKILL:
                kill_marked(self._container)
            sign = signal.SIGTERM
        self._signal(sign)

    def _signal(self, sign: signal.Signals) -> None:
        try:
            os.killpg(self.pid, sign)
        except (ProcessLookupError, PermissionError):
            pass


def _channel(layout: Layout) -> tuple[int, int]:
    """Both ends of what an action reports on; (-1, -1) where it does not."""
    if not layout.reports:
        return -1, -1
    if layout.fifo is None:
        reader, writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(reader, False)
        return reader, writer
    # its keeper has the writing end as well, so that the reading one sees an end once all is over
    reader = os.open(layout.fifo, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    return reader, os.open(layout.fifo, os.O_WRONLY | os.O_CLOEXEC)


def tail(log: Path, lines: int = 20, limit: int = 16384) -> list[str]:
    """The last lines of a log, at most `limit` bytes of it."""
    try:
        # the action may have put anything in its log's place: a pipe to hang on, a link to elsewhere
        with open(os.open(log, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            file.seek(0, os.SEEK_END)
            size = file.tell()
            file.seek(max(0, size - limit))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return []
    found = text.replace("\r\n", "\n").splitlines()
    return [plain(line.rpartition("\r")[2])[:400] for line in found[-lines:]]


def plain(line: str) -> str:
    """A line without terminal control: what a log says must not move the cursor of who reads an error."""
    import re

    line = re.sub(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|.)", "", line)
    return "".join(c if c.isprintable() or c == "\t" else "\ufffd" for c in line)
