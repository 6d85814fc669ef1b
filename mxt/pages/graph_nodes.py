"""From an action graph to the boxes of its picture: states from keys, results and the last build's record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mxt.action.action import Action, ActionId, SliceRef, SourceRef
from mxt.errors import StoreError
from mxt.execution.build_record import BuildRecord, BuiltStep, read_record, records
from mxt.execution.durations import Durations
from mxt.execution.forecast import Forecast, forecast
from mxt.execution.runner import Runner
from mxt.graph.graph import ActionGraph
from mxt.pages.graph_page import GraphNode
from mxt.pages.picture import PictureNode
from mxt.store.store import Store
from mxt.words import duration, ellipsis, moment, short_digests

LOOK_BACK = 20  # build records that may tell of an action's failure


@dataclass(frozen=True)
class GraphView:
    """Boxes, edges (what is read, its reader), and a sentence about the build that the states speak of.

    saves: edges along which only time is saved.
    """

    nodes: list[GraphNode]
    edges: list[tuple[str, str]]
    saves: list[tuple[str, str]]
    summary: str

    def counts(self) -> dict[str, int]:
        """Boxes by state."""
        found: dict[str, int] = {}
        for node in self.nodes:
            found[node.picture.state] = found.get(node.picture.state, 0) + 1
        return found


def view(root: Path, graph: ActionGraph, store: Store, runner: Runner, *, sources: bool = True) -> GraphView:
    """A box an action, one for each bundle with members here, and one a source that they read.

    hit: its result is in the store. executed: so, and the last build made it. stale: it would run, and has
    run before. waiting: it never has. refused: it would run and cannot. failed, skipped: that is how its last
    build left it, under this key.
    sources: whether files of the workspace have boxes.
    """
    last = _last_steps(graph, store)
    durations = Durations(store.layout.state / "durations.sqlite")
    nodes: list[GraphNode] = []
    edges: dict[tuple[str, str], None] = {}
    saves: list[tuple[str, str]] = []
    files: dict[str, None] = {}
    for item in forecast(graph, runner):
        action = item.action
        nodes.append(_action_node(item, last.steps.get(action.id), last, graph, store, runner, durations))
        for given in action.inputs:
            if not isinstance(given.ref, (SourceRef, SliceRef)):
                edges[str(given.ref.action), str(action.id)] = None
            elif sources:
                files[given.ref.path] = None
                edges[given.ref.path, str(action.id)] = None
        if action.accelerants_from is not None:
            saves.append((str(action.accelerants_from), str(action.id)))
    nodes += _bundles(graph, edges, {str(i): s for i, s in zip(graph.actions, nodes, strict=True)})
    kinds = {path: "source folder" if (root / path).is_dir() else "source file" for path in files}
    boxes = [
        GraphNode(PictureNode(path, path.rpartition("/")[2], kinds[path], "source", None, None), [])
        for path in files
    ]
    return GraphView([*boxes, *nodes], list(edges), saves, last.summary)


@dataclass(frozen=True)
class _Last:
    """For each action the newest record that mentions it. newest: the identity of the newest that does."""

    steps: Mapping[ActionId, tuple[BuiltStep, BuildRecord]]
    newest: str
    summary: str


def _last_steps(graph: ActionGraph, store: Store) -> _Last:
    found: dict[ActionId, tuple[BuiltStep, BuildRecord]] = {}
    newest: BuildRecord | None = None
    for path in records(store.layout.state)[:LOOK_BACK]:
        try:
            record = read_record(path)
        except StoreError:
            continue  # damaged: nothing but a little history is lost
        mine = {
            identity: (step, record)
            for step in record.steps
            if (identity := ActionId(step.label, step.action)) in graph.actions
        }
        newest = newest or (record if mine else None)
        for identity, step_and_record in mine.items():
            found.setdefault(identity, step_and_record)
        if len(found) == len(graph.actions):
            break
    if newest is None:
        return _Last(found, "", "never built here")
    how = "was interrupted" if newest.interrupted else "succeeded" if newest.success else "failed"
    text = f"last build {newest.identity[:8]}, {moment(newest.began)}, {how} after {duration(newest.wall_s)}"
    return _Last(found, newest.identity, text)


def _action_node(
    item: Forecast,
    step: tuple[BuiltStep, BuildRecord] | None,
    last: _Last,
    graph: ActionGraph,
    store: Store,
    runner: Runner,
    durations: Durations,
) -> GraphNode:
    action = item.action
    state = _state(item, step, last.newest, runner)
    wall_s: float | None = None
    size: int | None = None
    facts: list[tuple[str, str]] = []
    if item.status == "cached" and item.key:
        run = store.actions.latest_run(item.key)
        wall_s = float(run.wall_s) if run else None
        realisation = store.actions.lookup(item.key)
        if realisation is not None:
            size = sum(output.size for output in realisation.outputs.values())
    elif state == "failed" and step is not None:
        wall_s = step[0].wall_s or None
    elif (seconds := durations.get(action.id)) is not None:
        facts.append(("Took before", duration(seconds)))
    refusal = action.refusal if item.refused else None
    if refusal is not None:
        facts.append(("Cannot run", refusal.message))
        if refusal.hint:
            facts.append(("To do", refusal.hint))
    facts.append(("Key", item.key or "not known before what it reads is made"))
    facts += _reasons(item)
    target = graph.targets[action.id.label]
    facts.append(("Outputs", ", ".join(o.path for o in action.outputs)))
    if target.where:
        facts.append(("Declared", target.where))
    if state == "failed":
        step_name = f" --action {action.id.name}" if action.id.name else ""
        facts.append(("Log", f"mxt log {action.id.label}{step_name}"))
    word = refusal.word if refusal is not None else ""
    picture = PictureNode(str(action.id), _title(action), target.rule, state, wall_s, size, note=word)
    return GraphNode(picture, facts)


def _state(item: Forecast, step: tuple[BuiltStep, BuildRecord] | None, newest: str, runner: Runner) -> str:
    status = step[0].status if step else ""
    if item.status == "cached":
        return "executed" if step and status == "executed" and step[1].identity == newest else "hit"
    if step and status == "failed" and (item.key is None or item.key == step[0].key):
        return "failed"
    if item.refused:
        return "refused"
    if status == "skipped":
        return "skipped"
    return "stale" if runner.history(item.action.id) else "waiting"


def _reasons(item: Forecast) -> list[tuple[str, str]]:
    """Why it would run."""
    found = [("Changed", f"{c.field}: {_cut(c.old)} → {_cut(c.new)}") for c in item.changes[:6] if c.field]
    if len(item.changes) > 6:
        found.append(("Changed", f"and {len(item.changes) - 6} more"))
    makers = list(dict.fromkeys(str(maker) for maker in item.waits.values()))
    if makers:
        more = f" and {len(makers) - 3} more" if len(makers) > 3 else ""
        found.append(("Waits for", ", ".join(makers[:3]) + more))
    return found


def _cut(text: str) -> str:
    return ellipsis(short_digests(text), 80)


def _title(action: Action) -> str:
    """The target's name, and the step's."""
    name = action.id.label.rpartition(":")[2]
    return f"{name}[{action.id.name}]" if action.id.name else name


_WORST_FIRST = ("failed", "refused", "skipped", "stale", "waiting", "executed")


def _bundles(
    graph: ActionGraph, edges: dict[tuple[str, str], None], made: Mapping[str, GraphNode]
) -> list[GraphNode]:
    """A box for each bundle that was asked for or lies in one; it is as good as the worst of its members."""
    found = []
    for target in graph.wanted():
        if not target.members:
            continue
        members = [made[str(i)].picture for i in graph.below(target)]
        # what another member needs is in the picture already: lines from all would cover it
        below = graph.below(target)
        read = {str(d) for i in below for d in graph.actions[i].dependencies}
        for member in target.members:
            inner = graph.targets[member]
            ends = [member] if inner.members else [str(i) for i in graph.below(inner) if str(i) not in read]
            edges.update(((end, target.label), None) for end in ends)
        states = {m.state for m in members}
        state = next((s for s in _WORST_FIRST if s in states), "hit")
        state = "stale" if state == "waiting" and states & {"hit", "executed"} else state
        times = [m.wall_s for m in members if m.wall_s is not None]
        sizes = [m.size for m in members if m.size is not None]
        name = target.label.rpartition(":")[2]
        whole = state in ("hit", "executed")
        picture = PictureNode(
            target.label,
            name,
            "bundle",
            state,
            sum(times) if times and whole else None,
            sum(sizes) if sizes and whole else None,
        )
        facts = [("Declared", target.where)]
        if whole and target.receipt:
            from mxt.execution.build import out_place

            facts.append(("Receipt", f"{out_place(target.label)}/receipt.dsse.json"))
        found.append(GraphNode(picture, facts))
    return found
