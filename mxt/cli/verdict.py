"""What a test found, read from its result."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mxt.errors import ActionError

if TYPE_CHECKING:
    from mxt.cli.session import Session
    from mxt.execution.build import Built
    from mxt.graph.graph import ActionGraph


def verdict(session: Session, graph: ActionGraph, built: Built, label: str) -> dict[str, Any] | None:
    """What a test's output "verdict" says; None where it was not built."""
    for identity in graph.targets[label].actions:
        found = built.results.get(identity)
        if found is None or found.realisation is None or "verdict" not in found.realisation.outputs:
            continue
        try:
            data = json.loads(session.store.cas.read(found.realisation.outputs["verdict"].digest))
        except ValueError:
            data = None
        if not isinstance(data, dict) or not isinstance(data.get("passed"), bool):
            raise ActionError(
                "the verdict is not JSON with a boolean 'passed'",
                where=label,
                hint='a test writes {"passed": true, "summary": "..."} to its output "verdict"',
            )
        return data
    return None
