"""When only sources changed: builds what they concern, without loading and analysing all the rest."""

from __future__ import annotations

import os
from argparse import Namespace
from typing import TYPE_CHECKING

from mxt.graph.kept_graph import DamagedGraph, KeptGraph
from mxt.graph.snapshot import Look, drop, mend

if TYPE_CHECKING:
    from mxt.cli.session import Session
    from mxt.cli.shortcut import Shortcut


def rebuild(session: Session, shortcut: Shortcut, look: Look, args: Namespace, began: float) -> int | None:
    """Build what changed sources concern; None, with nothing done, where the whole way must be gone."""
    if look.elsewhere or not look.graph:
        return None
    from mxt.cli.execute import execute, report
    from mxt.cli.shortcut import shown_results
    from mxt.execution.build import Forgotten

    kept = KeptGraph(f"{os.path.dirname(shortcut.file)}/{look.graph}")
    try:
        try:
            affected = kept.affected(str(session.root), look.changed)
            if affected is None or affected.generation != look.generation:
                return None
            graph = affected.graph
            built = execute(session, graph, args, known=affected.known, untouched=kept.untouched)
        except (DamagedGraph, Forgotten):
            return None
        if not (built.errors or built.outcome.interrupted):
            keys = {i: found.key.digest for i, found in built.results.items() if i in graph.actions}
            try:
                kept.update(keys, look.generation + 1)
            except DamagedGraph:
                drop(shortcut.file)
            else:
                fresh = {**built.looked_at, **dict(shown_results(built)), **look.touched}
                mend(shortcut.file, look, fresh)
        counts = built.outcome.counts
        counts["cached"] = counts.get("cached", 0) + look.actions - len(graph.actions)
        return report(graph, built, began, affected.places)
    finally:
        kept.close()
