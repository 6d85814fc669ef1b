"""--watch: build, wait until something changes that the build looked at, build again.

Files are looked at by their stat tuples, which works on every file system and needs no limits raised.
Each build runs in a process of its own, so that it begins as fresh as one from the command line.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mxt.cli.watched import Watched
from mxt.errors import EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE

if TYPE_CHECKING:
    from mxt.cli.session import Session
    from mxt.execution.build import Built
    from mxt.graph.graph import ActionGraph

_DEATH_SIGNAL: Final = 1
_SHOWN = 3


@dataclass
class Seen:
    """What one build leaves behind for the watch; a part that it did not reach is None."""

    session: Session | None = None
    graph: ActionGraph | None = None
    built: Built | None = None


def watch(args: Namespace, once: Callable[[Namespace, Seen], int]) -> int:
    """Build until Ctrl-C. once: one build, which fills in what it saw.

    0 when interrupted while it waits, 8 when interrupted in the middle of a build; the exit code of a
    first build that says that the command line is wrong.
    """
    first = True
    while True:
        code, watched = _one_build(args, once)
        if code == EXIT_INTERRUPTED or (first and code == EXIT_USAGE) or watched is None:
            return code
        first = False
        try:
            changes = _wait(watched)
        except KeyboardInterrupt:
            print("stopped watching", file=sys.stderr)
            return EXIT_OK
        more = f" and {len(changes) - _SHOWN} more" if len(changes) > _SHOWN else ""
        print(f"changed: {', '.join(changes[:_SHOWN])}{more}", file=sys.stderr, flush=True)


def _wait(watched: Watched) -> list[str]:
    from mxt.cli.progress import live_wanted
    from mxt.cli.screen import Screen
    from mxt.words import plural

    line = f"watching {plural(len(watched), 'path')}; Ctrl-C ends"
    if not live_wanted():
        print(line, file=sys.stderr, flush=True)
        return watched.wait()
    screen = Screen(sys.stderr)
    try:
        screen.draw([], [line])
        return watched.wait()
    finally:
        screen.draw([], [])


# ---- one build in its own process -------------------------------------------------------------------


def _one_build(args: Namespace, once: Callable[[Namespace, Seen], int]) -> tuple[int, Watched | None]:
    """Its exit code and what to watch; None where it did not get so far as to know."""
    sys.stdout.flush()
    sys.stderr.flush()
    began = time.time_ns()
    readable, writable = os.pipe()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        os.close(readable)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        _child(args, once, writable, began, parent)
    os.close(writable)
    # Ctrl-C reaches the build itself; what is sent to this process alone is passed on
    old = {s: signal.signal(s, lambda n, _: os.kill(child, n)) for s in (signal.SIGTERM, signal.SIGHUP)}
    old[signal.SIGINT] = signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    try:
        with open(readable, "rb") as pipe:
            data = pipe.read()
        _, status = os.waitpid(child, 0)
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:  # killed: a shell's way to say so
        return 128 - code, None
    if not data:
        return code, None
    found = json.loads(data)
    return code, Watched(Path(found["root"]), found["paths"], found["links"])


def _child(
    args: Namespace, once: Callable[[Namespace, Seen], int], writable: int, began: int, parent: int
) -> None:
    """Build, tell what was looked at, and end; never returns."""
    code = 1
    try:
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(code)
        from mxt.cli.main import guarded

        seen = Seen()
        code = guarded(lambda: once(args, seen))
        if code != EXIT_INTERRUPTED and seen.session is not None:
            data = json.dumps(_looked_at(seen, began, _own_files(args))).encode("utf-8", "surrogateescape")
            with open(writable, "wb") as pipe:
                pipe.write(data)
        sys.stdout.flush()
        sys.stderr.flush()
    except (KeyboardInterrupt, BrokenPipeError):
        code = EXIT_INTERRUPTED
    finally:
        os._exit(code)


def _looked_at(seen: Seen, began: int, own: set[tuple[int, int]]) -> dict[str, Any]:
    """Every path whose change may change what a build does, and the links that it left.

    A build that failed before its graph was whole cannot say what it would have read: then it is the
    whole workspace, and what was edited since `began` (ns since 1970) counts as changed. own: (inode,
    device) of files that builds themselves write, such as a log in the workspace.
    """
    from mxt.cli.watched import whole_workspace
    from mxt.graph.snapshot import UNSURE

    session, graph, built = seen.session, seen.graph, seen.built
    assert session is not None
    paths: dict[str, Any] = session.looked_at()
    if "loader" in vars(session):
        session.loader.close()
    if graph is not None:
        paths.update(graph.read)
    if graph is not None and built is not None:
        for path, stat in built.looked_at.items():
            # looked at twice, with an edit between: no stat will do, so the next build looks properly
            paths[path] = stat if paths.setdefault(path, stat) == stat else UNSURE
        return {"root": str(session.root), "paths": paths, "links": _links(session.root, graph) | built.links}
    tree = whole_workspace(session.root, [session.workspace.store, session.root / "mxt-out"])
    for path, stat in tree.items():
        if stat is not None and (stat[3], stat[4]) not in own:
            paths.setdefault(path, UNSURE if stat[2] > began else stat)
    return {"root": str(session.root), "paths": paths, "links": {}}


def _links(root: Path, graph: ActionGraph) -> dict[str, str]:
    """Where the results of targets lie, as they were left in mxt-out."""
    from mxt.execution.build import out_place

    found = {}
    for target in graph.wanted():
        place = out_place(target.label)
        with contextlib.suppress(OSError):  # a folder of links, or nothing after a failure
            found[place] = os.readlink(root / place)
    return found


def _own_files(args: Namespace) -> set[tuple[int, int]]:
    """(inode, device) of what this process and its builds write to."""
    found = set()
    for place in (1, 2, args.events, args.profile):
        with contextlib.suppress(OSError):
            if place is not None:
                facts = os.stat(place)
                found.add((facts.st_ino, facts.st_dev))
    return found
