"""What a build would do, without doing it: keys where they can be known, and reasons where not."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from mxt.action.action import Action, ActionId, OutputRef
from mxt.action.explain import Change
from mxt.execution.runner import Runner
from mxt.graph.graph import ActionGraph


@dataclass
class Forecast:
    """status: "cached", "run" (its key is known and has no result) or "later" (an input is made first).

    key: where known. likeness: where it is not, a digest of the same form with "made so" in place of what is
    still to be made; two of them are equal where nothing that the action may read differs.
    changes: against the action's last form. waits: inputs that other actions make first.
    behind: of those that it waits for, directly or not, the first that cannot run: it cannot either.
    """

    action: Action
    status: str
    key: str | None = None
    changes: list[Change] = field(default_factory=list)
    waits: dict[str, ActionId] = field(default_factory=dict)
    likeness: str | None = None
    behind: ActionId | None = None

    @property
    def refused(self) -> bool:
        """Whether it would have to run, or perhaps so, and cannot."""
        return self.action.refusal is not None and self.status != "cached"


def forecast(graph: ActionGraph, runner: Runner, wanted: Iterable[ActionId] | None = None) -> list[Forecast]:
    """One forecast an action, in topological order."""
    made: dict[ActionId, Forecast] = {}
    for identity in graph.actions if wanted is None else wanted:
        action = graph.actions[identity]
        waits = {
            i.name: i.ref.action
            for i in action.inputs
            if isinstance(i.ref, OutputRef) and made[i.ref.action].status != "cached"
        }
        if waits:
            changes = runner.partial_reason(action, waits)
            likeness = runner.likeness(action, {w: made[w].key or made[w].likeness for w in waits.values()})
            behind = next((b for w in waits.values() if (b := _stopped(made[w]))), None)
            made[identity] = Forecast(action, "later", None, changes, waits, likeness, behind)
            continue
        found = runner.find(action)
        if found.realisation is not None:
            runner.made(action, found, remember=False)
            made[identity] = Forecast(action, "cached", found.key.digest)
        else:
            made[identity] = Forecast(action, "run", found.key.digest, runner.reason(action, found))
    return list(made.values())


def _stopped(item: Forecast) -> ActionId | None:
    """What keeps an action from running: itself, what it is behind, or None."""
    return item.action.id if item.refused else item.behind


def last_change(runner: Runner, identity: ActionId) -> tuple[float, list[Change]] | None:
    """When an action's key last changed (seconds since 1970) and how; None where it has had only one."""
    from mxt.action.explain import compare

    history = runner.history(identity)
    if len(history) < 2:
        return None
    old, new = (runner.form(entry.key) for entry in history[-2:])
    if old is None or new is None:
        return history[-1].time, [Change("", "", "a form to compare with is no longer kept")]
    return history[-1].time, compare(json.loads(old), json.loads(new))
