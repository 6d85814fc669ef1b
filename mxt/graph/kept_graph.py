"""The action graph of the last build, kept so that a changed source leads to what it concerns at once.

Loading and analysing 10,000 targets takes a second, and editing a source changes none of it. So the plain
actions of a graph, commands over files, are kept beside the snapshot: from a source to the actions that read
it, from those to their consumers. Where an action is of another kind, or part of a bundle with a receipt,
the whole way is gone.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mxt.action.action import Action, ActionId, Input, Output, OutputRef, SliceRef, SourceRef
from mxt.graph.graph import ActionGraph
from mxt.graph.target import AnalysedTarget
from mxt.store.database import Database

MOST_AFFECTED = 2000
_SCHEMA = """
CREATE TABLE actions(id INTEGER PRIMARY KEY, label TEXT, name TEXT, key TEXT, linked INTEGER, form TEXT);
CREATE TABLE reads(path TEXT, action INTEGER);
CREATE TABLE consumers(maker INTEGER, consumer INTEGER);
CREATE TABLE facts(name TEXT PRIMARY KEY, value TEXT);
CREATE UNIQUE INDEX actions_name ON actions(label, name);
CREATE INDEX reads_path ON reads(path);
CREATE INDEX consumers_maker ON consumers(maker)
"""


@dataclass
class Affected:
    """graph: the actions that changed sources concern, and their targets where mxt-out links to them.

    known: the keys of what they read and that is not among them.
    """

    graph: ActionGraph
    known: Mapping[ActionId, str]


class KeptGraph:
    """One file; written whole after a build that went the whole way, and told new keys after others."""

    def __init__(self, file: str) -> None:
        self._database = Database(Path(file), 1, _SCHEMA)

    def write(self, graph: ActionGraph, keys: Mapping[ActionId, str], places: list[str]) -> None:
        """keys: of all actions. places: the lines that the build ended with."""
        linked: set[ActionId] = set()
        entangled: set[ActionId] = set()
        for target in graph.wanted():
            below = graph.below(target)
            if target.members:
                entangled.update(below)
            elif target.actions:
                linked.update(target.actions)
        numbers = {identity: n for n, identity in enumerate(graph.actions)}
        rows, reads, consumers = [], [], []
        for identity, action in graph.actions.items():
            number = numbers[identity]
            form = None if identity in entangled or not _plain(action) else _form(action)
            rows.append((number, *identity, keys[identity], int(identity in linked), form))
            sources = [i.ref.path for i in action.inputs if isinstance(i.ref, (SourceRef, SliceRef))]
            reads += [(path, number) for path in sources]
            consumers += [(numbers[maker], number) for maker in action.dependencies]
        self._database.write("INSERT INTO actions VALUES (?,?,?,?,?,?)", rows)
        self._database.write("INSERT INTO reads VALUES (?,?)", reads)
        self._database.write("INSERT INTO consumers VALUES (?,?)", consumers)
        facts = [("places", json.dumps(places)), ("actions", str(len(rows)))]
        self._database.write("INSERT INTO facts VALUES (?,?)", facts)

    def affected(self, root: str, changed: Iterable[str]) -> Affected | None:
        """What these changed sources concern, all of it; None where the whole way must be gone."""
        if self._fact("actions") is None:
            return None  # not written to its end
        waiting: list[int] = []
        for path in changed:
            try:
                mode = os.lstat(f"{root}/{path}").st_mode
            except (OSError, ValueError):
                return None
            found = self._database.rows("SELECT action FROM reads WHERE path=?", (path,))
            if not found or not stat.S_ISREG(mode):
                return None
            waiting += [number for (number,) in found]
        rows: dict[int, tuple[Any, ...]] = {}
        while waiting:
            number = waiting.pop()
            if number in rows:
                continue
            row = self._database.rows("SELECT label, name, linked, form FROM actions WHERE id=?", (number,))
            if not row or row[0][3] is None or len(rows) >= MOST_AFFECTED:
                return None
            rows[number] = row[0]
            next_ = self._database.rows("SELECT consumer FROM consumers WHERE maker=?", (number,))
            waiting += [consumer for (consumer,) in next_]
        graph = ActionGraph()
        requested = []
        for number in sorted(rows):  # numbered in topological order
            label, name, is_linked, form = rows[number]
            identity = ActionId(label, name)
            graph.actions[identity] = _action(identity, json.loads(form))
            graph.targets[label] = AnalysedTarget(label, "genrule", "", actions=(identity,))
            if is_linked:
                requested.append(label)
        graph.requested = tuple(requested)
        known: dict[ActionId, str] = {}
        for action in graph.actions.values():
            for maker in action.dependencies:
                if maker not in graph.actions and maker not in known:
                    key = self._key(maker)
                    if key is None:
                        return None
                    known[maker] = key
        return Affected(graph, known)

    def untouched(self, reached: Iterable[tuple[str, str]]) -> str:
        """All actions but those reached, as a JSON array of build_record's steps.

        Made by SQLite, which takes a quarter of the time that Python would for 10,000 of them.
        """
        names = list(reached)
        query = "SELECT json_group_array(json_array(label, name, key, 'cached', 0.0)) FROM actions"
        if names:
            query += f" WHERE (label, name) NOT IN (VALUES {','.join(['(?,?)'] * len(names))})"
        rows = self._database.rows(query, [text for name in names for text in name])
        return str(rows[0][0]) if rows else "[]"

    def places(self) -> list[str]:
        return [str(place) for place in json.loads(self._fact("places") or "[]")]

    def update(self, keys: Mapping[ActionId, str]) -> None:
        """New keys of some actions."""
        rows = [(key, *identity) for identity, key in keys.items()]
        self._database.write("UPDATE actions SET key=? WHERE label=? AND name=?", rows)

    def close(self) -> None:
        self._database.close()

    def _key(self, identity: ActionId) -> str | None:
        rows = self._database.rows("SELECT key FROM actions WHERE label=? AND name=?", tuple(identity))
        return str(rows[0][0]) if rows else None

    def _fact(self, name: str) -> str | None:
        rows = self._database.rows("SELECT value FROM facts WHERE name=?", (name,))
        return str(rows[0][0]) if rows else None


def keepable(graph: ActionGraph) -> bool:
    """Whether a kept graph would ever help: it has plain actions."""
    return any(_plain(action) for action in graph.actions.values())


def _plain(action: Action) -> bool:
    """Whether an action is a command over files, all of which `_form` says."""
    return (
        action.entry == "genrule"
        and not (action.toolchain or action.platform or action.config or action.unkeyed)
        and not (action.exclusive or action.network or action.progress or action.accelerants)
        and not (action.accelerants_from or action.passthrough or action.test or action.effect)
        and all(i.ref.__class__ is not SliceRef for i in action.inputs)
        and all(o.kind == "file" for o in action.outputs)
    )


def _form(action: Action) -> str:
    return json.dumps(
        [
            action.mnemonic,
            action.entry,
            action.implementation,
            [[i.name, i.path, i.ref] for i in action.inputs],
            action.outputs,
            action.params,
            action.environment,
            action.outputs_at,
            [action.cpus, action.memory_mb, action.gpus],
        ],
        separators=(",", ":"),
    )


def _action(identity: ActionId, form: list[Any]) -> Action:
    mnemonic, entry, implementation, inputs, outputs, params, environment, outputs_at, needs = form
    return Action(
        id=identity,
        mnemonic=mnemonic,
        entry=entry,
        implementation=implementation,
        inputs=tuple(
            Input(name, path, SourceRef(*ref) if len(ref) == 1 else OutputRef(ActionId(*ref[0]), ref[1]))
            for name, path, ref in inputs
        ),
        outputs=tuple(Output(*output) for output in outputs),
        params=params,
        environment=environment,
        outputs_at=outputs_at,
        cpus=needs[0],
        memory_mb=needs[1],
        gpus=needs[2],
    )
