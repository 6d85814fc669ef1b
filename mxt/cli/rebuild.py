"""When only sources changed: builds what they concern, without loading and analysing all the rest."""

from __future__ import annotations

import os
from argparse import Namespace
from typing import TYPE_CHECKING

from mxt.action.action import ActionId
from mxt.graph.kept_graph import KeptGraph, keepable
from mxt.graph.snapshot import Look, mend
from mxt.loading.reads import stat_of

if TYPE_CHECKING:
    from mxt.cli.session import Session
    from mxt.cli.shortcut import Shortcut
    from mxt.execution.build import Built
    from mxt.graph.graph import ActionGraph


def keep_graph(snapshot: str, graph: ActionGraph, built: Built) -> str:
    """Keep a build's graph beside its snapshot; the file's name, or "" where none of it could be used."""
    from mxt.cli.build import result_places

    if not keepable(graph):
        return ""
    name = f"{os.path.basename(snapshot)}.{os.urandom(4).hex()}.graph"
    os.makedirs(os.path.dirname(snapshot), exist_ok=True)
    kept = KeptGraph(f"{os.path.dirname(snapshot)}/{name}")
    keys = {identity: found.key.digest for identity, found in built.results.items()}
    kept.write(graph, keys, result_places(graph))
    kept.close()
    return name


def rebuild(session: Session, shortcut: Shortcut, look: Look, args: Namespace, began: float) -> int | None:
    """Build what changed sources concern; None, with nothing done, where the whole way must be gone."""
    if look.elsewhere or not look.graph:
        return None
    from mxt.cli.build import execute, report
    from mxt.execution.build import Forgotten

    # before anything else: what is written to them from now on shows
    touched = {path: stat_of(os.path.join(session.root, path)) for path in look.touched}
    kept = KeptGraph(f"{os.path.dirname(shortcut.file)}/{look.graph}")
    try:
        affected = kept.affected(str(session.root), look.changed)
        if affected is None:
            return None
        graph = affected.graph
        try:
            built = execute(session, graph, args, known=affected.known, untouched=kept.untouched)
        except Forgotten:
            return None
        if not (built.errors or built.outcome.interrupted):
            keys: dict[ActionId, str] = {i: found.key.digest for i, found in built.results.items()}
            kept.update({i: key for i, key in keys.items() if i in graph.actions})
            fresh = dict(built.looked_at)
            fresh.update((p, stat_of(f"{session.root}/{p}")) for p in built.shown)
            fresh.update(touched)
            mend(shortcut.file, fresh)
        counts = built.outcome.counts
        counts["cached"] = counts.get("cached", 0) + look.actions - len(graph.actions)
        return report(graph, built, began, kept.places())
    finally:
        kept.close()
