"""What a build leaves for the next one of the same labels, and what that next one may skip."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mxt.cli.glance import request_text
from mxt.cli.session import Session
from mxt.graph.snapshot import UNSURE, Look, Snapshot, engine_identity, look, place, write
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
        return look(self.file, self._root, self._engine, self._request) if self.usable else None

    def remember(self, graph: ActionGraph, built: Built) -> None:
        """After a build without errors."""
        left = left_behind(self._session, graph, built)
        snapshot = Snapshot(
            self._request, len(graph.actions), left.loading, left.sources, left.results, built.links
        )
        write(self.file, self._engine, snapshot)


@dataclass
class LeftBehind:
    """Every path that made a difference to a build, and what it left, with stat tuples."""

    loading: Mapping[str, Stat | None]
    sources: Mapping[str, Stat | None]
    results: Mapping[str, Stat | None]

    def everything(self) -> dict[str, Stat | None]:
        return {**self.loading, **self.sources, **self.results}


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
    results: dict[str, Stat | None] = {}
    for path, is_folder in built.shown.items():
        results[path] = stat_of(f"{root}/{path}")
        if is_folder:
            for folder, folders, names in os.walk(f"{root}/{path}"):
                for name in (*folders, *names):
                    full = os.path.join(folder, name)
                    results[os.path.relpath(full, root)] = stat_of(full)
    for receipt in built.receipts:
        for path in (receipt, report_beside(receipt)):
            results[path] = stat_of(os.path.join(root, path))
    return LeftBehind(loading, sources, results)
