"""The action graph of the last build, kept so that a changed source leads to what it concerns at once.

Loading and analysing 10,000 targets takes a second, and editing a source changes none of it. So the plain
actions of a graph, commands over files, are kept beside the snapshot: from a source to the actions that read
it, from those to their consumers. Where an action is of another kind, or part of a bundle with a receipt,
the whole way is gone.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from blake3 import blake3

from mxt.action.action import Action, ActionId, Input, Output, OutputRef, SliceRef, SourceRef
from mxt.graph.graph import ActionGraph
from mxt.graph.target import AnalysedTarget

if TYPE_CHECKING:
    import sqlite3

MOST_AFFECTED = 2000
_SCHEMA = """
CREATE TABLE actions(id INTEGER PRIMARY KEY, label TEXT, name TEXT, key TEXT, linked INTEGER, form TEXT,
  consumers TEXT, sum TEXT);
CREATE TABLE sources(path TEXT PRIMARY KEY, readers TEXT, sum TEXT) WITHOUT ROWID;
CREATE TABLE facts(name TEXT PRIMARY KEY, value TEXT, sum TEXT) WITHOUT ROWID;
CREATE UNIQUE INDEX actions_name ON actions(label, name)
"""


@dataclass
class Affected:
    """graph: the actions that changed sources concern, and their targets where mxt-out links to them.

    known: the keys of what they read and that is not among them. places: the lines that the build of all
    ended with. generation: of the keys.
    """

    graph: ActionGraph
    known: Mapping[ActionId, str]
    places: Sequence[str]
    generation: int


class DamagedGraph(Exception):  # noqa: N818 - it is caught: the whole way is gone instead
    """The kept graph cannot be read, or is not what was written."""


class KeptGraph:
    """One file; written whole after a build that went the whole way, and told new keys after others.

    A wrong answer would leave stale results, so every row carries a sum of itself, and whatever is missing,
    damaged or cannot be read raises DamagedGraph.
    """

    def __init__(self, file: str) -> None:
        self._file = file
        self._connection: sqlite3.Connection | None = None

    def write(self, graph: ActionGraph, keys: Mapping[ActionId, str], places: Sequence[str]) -> None:
        """keys: of all actions. places: the lines that the build ended with. Raises DamagedGraph."""
        linked: set[ActionId] = set()
        entangled: set[ActionId] = set()
        for target in graph.wanted():
            below = graph.below(target)
            if target.members:
                entangled.update(below)
            elif target.actions:
                linked.update(target.actions)
        numbers = {identity: n for n, identity in enumerate(graph.actions)}
        consumers: list[list[int]] = [[] for _ in numbers]
        readers: dict[str, list[int]] = {}
        for identity, action in graph.actions.items():
            number = numbers[identity]
            for maker in action.dependencies:
                consumers[numbers[maker]].append(number)
            for i in action.inputs:
                if isinstance(i.ref, (SourceRef, SliceRef)):
                    readers.setdefault(i.ref.path, []).append(number)
        rows = []
        for identity, action in graph.actions.items():
            number = numbers[identity]
            form = "" if identity in entangled or not _plain(action) else _form(action)
            after = json.dumps(consumers[number])
            rows.append(_summed(number, *identity, keys[identity], int(identity in linked), form, after))
        facts = {"places": json.dumps(list(places)), "generation": "0"}
        with self._strict() as connection:
            connection.executescript(f"PRAGMA journal_mode=OFF;PRAGMA synchronous=OFF;BEGIN;{_SCHEMA}")
            connection.executemany("INSERT INTO actions VALUES (?,?,?,?,?,?,?,?)", rows)
            read = [_summed(path, json.dumps(numbers_)) for path, numbers_ in readers.items()]
            connection.executemany("INSERT INTO sources VALUES (?,?,?)", read)
            connection.executemany("INSERT INTO facts VALUES (?,?,?)", [_summed(*f) for f in facts.items()])
            connection.execute("COMMIT")

    def affected(self, root: str, changed: Iterable[str]) -> Affected | None:
        """What these changed sources concern, all of it; None where the whole way must be gone.

        Raises DamagedGraph.
        """
        with self._strict():
            return self._affected(root, changed)

    def _affected(self, root: str, changed: Iterable[str]) -> Affected | None:
        waiting: list[int] = []
        for path in changed:
            try:
                mode = os.lstat(f"{root}/{path}").st_mode
            except (OSError, ValueError):
                return None
            if not stat.S_ISREG(mode):
                return None
            waiting += _numbers(self._row("SELECT * FROM sources WHERE path=?", path)[1])
        rows: dict[int, tuple[Any, ...]] = {}
        while waiting:
            number = waiting.pop()
            if number in rows:
                continue
            row = self._row("SELECT * FROM actions WHERE id=?", number)
            if not row[5] or len(rows) >= MOST_AFFECTED:
                return None
            rows[number] = row
            waiting += _numbers(row[6])
        graph = ActionGraph()
        requested = []
        for number in sorted(rows):  # numbered in topological order
            _, label, name, _, is_linked, form, _ = rows[number]
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
                    row = self._row("SELECT * FROM actions WHERE label=? AND name=?", *maker)
                    known[maker] = str(row[3])
        places = [str(place) for place in json.loads(self._fact("places"))]
        return Affected(graph, known, places, int(self._fact("generation")))

    def untouched(self, reached: Iterable[tuple[str, str]]) -> str:
        """All actions but those reached, as a JSON array of build_record's steps.

        Made by SQLite, which takes a quarter of the time that Python would for 10,000 of them.
        """
        names = list(reached)
        query = "SELECT json_group_array(json_array(label, name, key, 'cached', 0.0)) FROM actions"
        if names:
            query += f" WHERE (label, name) NOT IN (VALUES {','.join(['(?,?)'] * len(names))})"
        try:
            with self._strict() as connection:
                return str(connection.execute(query, [t for name in names for t in name]).fetchone()[0])
        except DamagedGraph:  # the record of a build is for people: it says less
            return "[]"

    def update(self, keys: Mapping[ActionId, str], generation: int) -> None:
        """New keys of some actions, as of a generation. Raises DamagedGraph where they were not written."""
        with self._strict() as connection:
            connection.execute("BEGIN IMMEDIATE")
            for identity, key in keys.items():
                number, label, name, _, *rest = self._row(
                    "SELECT * FROM actions WHERE label=? AND name=?", *identity
                )
                fresh = _summed(number, label, name, key, *rest)
                connection.execute("UPDATE actions SET key=?, sum=? WHERE id=?", (key, fresh[-1], number))
            fresh = _summed("generation", str(generation))
            connection.execute("INSERT OR REPLACE INTO facts VALUES (?,?,?)", fresh)
            connection.execute("COMMIT")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _fact(self, name: str) -> str:
        return str(self._row("SELECT * FROM facts WHERE name=?", name)[1])

    def _row(self, query: str, *values: Any) -> tuple[Any, ...]:
        """The one row of a query, without its sum, which has been checked."""
        assert self._connection is not None
        rows = self._connection.execute(query, values).fetchall()
        if len(rows) != 1 or _summed(*rows[0][:-1]) != rows[0]:
            raise ValueError("a row is missing or damaged")
        return tuple(rows[0][:-1])

    @contextlib.contextmanager
    def _strict(self) -> Iterator[sqlite3.Connection]:
        import sqlite3

        try:
            if self._connection is None:
                self._connection = sqlite3.connect(self._file, timeout=1, isolation_level=None)
            yield self._connection
        except (sqlite3.Error, ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
            self.close()
            raise DamagedGraph(str(error)) from None


def _summed(*row: Any) -> tuple[Any, ...]:
    return (*row, blake3(repr(row).encode("utf-8", "surrogateescape")).hexdigest(length=8))


def _numbers(text: Any) -> list[int]:
    return [int(number) for number in json.loads(text)]


def keepable(graph: ActionGraph) -> bool:
    """Whether a kept graph would ever help: it has plain actions."""
    return any(_plain(action) for action in graph.actions.values())


def _plain(action: Action) -> bool:
    """Whether an action is a command over files, all of which `_form` says."""
    return (
        action.entry == "genrule"
        and not (action.toolchain or action.platform or action.config or action.unkeyed)
        and not (action.memory_mb or action.gpus)  # what this machine may lack is looked at the whole way
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
            action.cpus,
        ],
        separators=(",", ":"),
    )


def _action(identity: ActionId, form: list[Any]) -> Action:
    mnemonic, entry, implementation, inputs, outputs, params, environment, outputs_at, cpus = form
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
        cpus=cpus,
    )
