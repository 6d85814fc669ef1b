"""Starts one container, waits for it, and ends it when mxt wants that or is no more.

Usage: python -I -S keeper.py CONTAINER.json

A container is no child of whoever asks for it, so it does not end with mxt by itself. This process stands
in its place: mxt waits for it and signals it; it holds the lock of the action's key (a descriptor that
mxt left open) until the container is gone. Its standard input is a pipe that nobody writes to: its end
says that mxt has ended, however that came about.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time

_PATIENCE = 20.0  # seconds that a container may take to be gone
_LAUNCH = (125, 126, 127)  # an engine's own ways to say that nothing was started, or a command's own status
_COMPLAINTS = ("Error: ", "docker: ")


def main(path: str) -> int:
    """The exit status of the container's command."""
    with open(path, encoding="utf-8") as file:
        spec = json.load(file)
    mark = os.environ.pop("MXT_CONTAINER_MARK")
    report = os.environ.pop("MXT_REPORT_FD", None)
    name = f"mxt-{mark}"
    wake_r, wake_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
    for sign in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(sign, lambda *_: None)
    # by the mark mxt's warden finds the first process inside
    run = [*spec["engine"], *spec["run"], "--name", name, "--env", f"MXT_ACTION={mark}", *spec["command"]]
    with open(spec["said"], "wb") as said:
        try:
            # in a session of its own: signals are for this process, which ends the container itself
            child = subprocess.Popen(
                run, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True, cwd="/"
            )
        except OSError as error:
            return _not_started(spec, report, f"{error.strerror}: {run[0]}")
    pidfd = os.pidfd_open(child.pid)
    poll = select.poll()
    for fd in (pidfd, wake_r, 0):
        poll.register(fd, select.POLLIN | select.POLLHUP)
    ready = {fd for fd, _ in poll.poll()}
    if pidfd not in ready:
        _end(child, spec, name)
    status = child.wait()
    with open(spec["said"], encoding="utf-8", errors="replace") as file:
        words = file.read().strip()
    if words and pidfd in ready:
        print(words, flush=True)
        if status in _LAUNCH and words.splitlines()[-1].startswith(_COMPLAINTS):
            return _not_started(spec, report, words.splitlines()[-1], status)
    return status if status >= 0 else 128 - status


def _end(child: subprocess.Popen[bytes], spec: dict[str, object], name: str) -> None:
    """Kill the container until its engine's command has seen it end; then see that nothing of it is left."""
    engine = spec["engine"]
    deadline = time.monotonic() + _PATIENCE
    while child.poll() is None and time.monotonic() < deadline:
        _quietly([*engine, "kill", "--signal", "KILL", name])  # type: ignore[misc]
        try:
            child.wait(0.3)
        except subprocess.TimeoutExpired:
            continue  # it had not been started yet
    if child.poll() is None:
        child.kill()
    # without this, podman would ask the first process inside to end, and wait for ten seconds
    at_once = ["--time", "0"] if spec["kind"] == "podman" else []
    _quietly([*engine, "rm", "--force", *at_once, name])  # type: ignore[misc]


def _quietly(argv: list[str]) -> None:
    try:
        subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_PATIENCE,
            check=False,
            start_new_session=True,
        )
    except (OSError, subprocess.TimeoutExpired):
        pass


def _not_started(spec: dict[str, object], report: str | None, words: str, status: int = 125) -> int:
    """Say that it was the engine that failed and not the action."""
    if report is not None:
        error = {
            "message": f"{spec['kind']} could not start the container: {words.removeprefix('Error: ')[:400]}",
            "where": "",
            "hint": "mxt doctor tries the engine; options that this machine needs go into MXT_CONTAINER_ARGS",
            "excerpt": "",
        }
        try:
            os.write(int(report), (json.dumps({"error": error}) + "\n").encode())
        except OSError:
            pass
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
