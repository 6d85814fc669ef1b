"""What a build leaves for the next one of the same labels, and what that next one may skip."""

from __future__ import annotations

import contextlib
import os
from argparse import Namespace
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mxt.cli.glance import looks, request_text
from mxt.cli.session import Session
from mxt.graph.snapshot import UNSURE, Look, Snapshot, drop, engine_identity, listing, look, place, write
from mxt.loading.reads import Stat, stat_of

if TYPE_CHECKING:
    from mxt.execution.build import Built
    from mxt.graph.graph import ActionGraph


class Shortcut:
    """Remembers a successful build of these labels, and recognises that nothing changed since."""

    def __init__(self, session: Session, args: Namespace) -> None:
        self._session = session
        self._root = str(session.root)
        self.usable = not (args.dry_run or args.events or args.profile or args.verbose)
        self._request = request_text(self._root, args.labels)
        self.file = place(str(session.workspace.store), self._request)
        self._engine = engine_identity()

    def look(self) -> Look | None:
        """What changed since the last build of these labels; None where nothing is known of one."""
        if not self.usable:
            return None
        if self._request in looks:
            return looks.pop(self._request)
        return look(self.file, self._root, self._engine, self._request)

    def remember(self, graph: ActionGraph, built: Built) -> None:
        """After a build without errors that went the whole way."""
        left = left_behind(self._session, graph, built)
        kept = keep_graph(self.file, graph, built)
        snapshot = Snapshot(
            self._request,
            len(graph.actions),
            left.loading,
            left.folders,
            left.sources,
            left.results,
            built.links,
            kept,
        )
        write(self.file, self._engine, snapshot)
        self._forget_graphs(kept)

    def _forget_graphs(self, kept: str) -> None:
        folder, name = os.path.split(self.file)
        with contextlib.suppress(OSError):
            for other in os.listdir(folder):
                if other.startswith(f"{name}.") and ".graph" in other and other != kept:
                    os.unlink(f"{folder}/{other}")


def keep_graph(snapshot: str, graph: ActionGraph, built: Built) -> str:
    """Keep a build's graph beside its snapshot; the file's name, or "" where none of it could be used."""
    from mxt.cli.execute import result_places
    from mxt.graph.kept_graph import DamagedGraph, KeptGraph, keepable

    if not keepable(graph):
        return ""
    folder, name = os.path.split(snapshot)
    name = f"{name}.{os.urandom(4).hex()}.graph"
    kept = KeptGraph(f"{folder}/{name}")
    try:
        os.makedirs(folder, exist_ok=True)
        keys = {identity: found.key.digest for identity, found in built.results.items()}
        kept.write(graph, keys, result_places(graph))
    except (OSError, DamagedGraph):
        drop(f"{folder}/{name}")
        return ""
    finally:
        kept.close()
    return name


@dataclass
class LeftBehind:
    """Every path that made a difference to a build, and what it left, with stat tuples."""

    loading: Mapping[str, Stat | None]
    folders: Mapping[str, tuple[Stat, int]]
    sources: Mapping[str, Stat | None]
    results: Mapping[str, Stat | None]

    def everything(self) -> dict[str, Stat | None]:
        folders = {path: stat for path, (stat, _) in self.folders.items()}
        return {**self.loading, **folders, **self.sources, **self.results}


def left_behind(session: Session, graph: ActionGraph, built: Built) -> LeftBehind:
    """Of a build that went as far as its results."""
    from mxt.pages.report_file import report_beside

    root = str(session.root)
    loading: dict[str, Stat | None] = {**graph.read, **session.looked_at()}
    sources: dict[str, Stat | None] = {}
    for path, stat in built.looked_at.items():
        if path not in loading:
            sources[path] = stat
        elif loading[path] != stat:
            # looked at twice, with an edit between: no stat will do, so the next build looks properly
            loading[path] = UNSURE
    results: dict[str, Stat | None] = dict(shown_results(built))
    for receipt in built.receipts:
        for path in (receipt, report_beside(receipt)):
            results[path] = stat_of(os.path.join(root, path))
    # a folder that is a source counts by all that is in it, not by what it lists
    listed = _folders(root, {path: stat for path, stat in loading.items() if path not in built.looked_at})
    for path in listed:
        del loading[path]
    return LeftBehind(loading, listed, sources, results)


def shown_results(built: Built) -> Iterator[tuple[str, Stat | None]]:
    """Requested targets' results by their paths through mxt-out, with the stat tuples of this build's own.

    Another build may have turned the links since: then these paths show other files, which differ.
    """
    for path, (own, is_folder) in built.shown.items():
        yield path, stat_of(own)
        if is_folder:
            for folder, folders, names in os.walk(own):
                for name in (*folders, *names):
                    full = os.path.join(folder, name)
                    yield path + full[len(own) :], stat_of(full)


def _folders(root: str, loading: Mapping[str, Stat | None]) -> dict[str, tuple[Stat, int]]:
    """Those of the paths that are folders, and as they were when they were listed, with what they list."""
    found: dict[str, tuple[Stat, int]] = {}
    back = os.getcwd()
    os.chdir(root)  # as the look at a snapshot does, so that both see the same
    try:
        for path, seen in loading.items():
            if seen is None or not os.path.isdir(path):
                continue
            with contextlib.suppress(OSError):
                digest = listing(path)
                if stat_of(path) == seen:
                    found[path] = (seen, digest)
    finally:
        os.chdir(back)
    return found
