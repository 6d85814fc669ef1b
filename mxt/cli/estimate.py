"""mxt build -n --estimate: what rules expect their targets to cost, added up over what would have to run."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mxt.errors import EXIT_OK, GraphError, MxtError
from mxt.estimates import Asked, Cell, Estimate, Figure, Grid, Range

if TYPE_CHECKING:
    from mxt.action.action import ActionId
    from mxt.cli.session import Session
    from mxt.graph.graph import ActionGraph
    from mxt.graph.target import AnalysedTarget

CACHED, TO_RUN = "cached", "to run"


@dataclass
class Stage:
    """A target below a requested one. state: "cached", "to run", "blocked", or the word of its refusal."""

    label: str
    state: str
    estimate: Estimate | None


@dataclass
class Group:
    """A requested target and all that it needs, in the order in which it would run."""

    label: str
    stages: list[Stage] = field(default_factory=list)

    @property
    def running(self) -> list[Stage]:
        return [s for s in self.stages if s.state != CACHED]

    @property
    def untimed(self) -> list[Stage]:
        """What would run, for a time that nobody gave."""
        return [s for s in self.running if s.estimate is None or s.estimate.seconds is None]

    @property
    def decided_by(self) -> list[Stage]:
        """What would take most of the time, as its rule says, for a time that nobody gave."""
        return [s for s in self.untimed if s.estimate is not None and s.estimate.decides]

    @property
    def seconds(self) -> Range | None:
        if self.decided_by:
            return None
        return _sum([s.estimate.seconds for s in self.running if s.estimate])

    @property
    def cost(self) -> Range | None:
        if self.decided_by:
            return None
        return _sum([s.estimate.cost for s in self.running if s.estimate])


def show_estimate(session: Session, graph: ActionGraph, *, as_json: bool) -> int:
    """Print a block for each requested target; 0."""
    groups = gather(session, graph)
    if as_json:
        print(json.dumps([_group_form(g) for g in groups], indent=2))
        return EXIT_OK
    from mxt.cli.cells import columns_of
    from mxt.cli.estimate_text import show

    print("\n".join(show(groups, columns_of(sys.stdout, 120))))
    return EXIT_OK


def gather(session: Session, graph: ActionGraph) -> list[Group]:
    """The estimates of all that the requested targets need. Raises GraphError where a rule's code fails."""
    from mxt.cli.dry_run import BLOCKED
    from mxt.execution.forecast import forecast

    states: dict[str, str] = {}
    for item in forecast(graph, session.runner(graph)):
        label = item.action.id.label
        refusal = item.action.refusal
        state = CACHED if item.status == "cached" else TO_RUN
        if refusal is not None and state != CACHED:
            state = refusal.word
        elif item.behind:
            state = BLOCKED
        if states.get(label, CACHED) == CACHED:
            states[label] = state
    book = _Book(session, graph)
    below = {label: _below(graph, label) for label in graph.requested}
    inner = {x for label, found in below.items() for x in found if x != label}
    groups = []
    for label in graph.requested:
        if label in inner:
            continue
        group = Group(label)
        for one in below[label]:
            if graph.targets[one].actions:
                group.stages.append(Stage(one, states.get(one, TO_RUN), book.of(one)))
        if group.stages:
            groups.append(group)
    return groups


def _below(graph: ActionGraph, label: str) -> list[str]:
    """A target and all targets that it needs, each behind what it needs itself."""
    found: dict[str, None] = {}

    def visit(one: str) -> None:
        target = graph.targets.get(one)
        if target is None or one in found:
            return
        for other in (*target.dependencies, *target.members):
            visit(other)
        found[one] = None

    visit(label)
    return list(found)


class _Book:
    """Estimates by label, each asked for once."""

    def __init__(self, session: Session, graph: ActionGraph) -> None:
        self._session = session
        self._graph = graph
        self._known: dict[str, Estimate | None] = {}

    def of(self, label: str) -> Estimate | None:
        if label not in self._known:
            self._known[label] = None  # whoever asks in a circle gets no answer
            self._known[label] = self._ask(self._graph.targets[label])
        return self._known[label]

    def _ask(self, target: AnalysedTarget) -> Estimate | None:
        from mxt.graph.core_rules import CORE_RULES
        from mxt.loading.label import Label

        if target.rule in CORE_RULES:
            return None
        definition = self._session.definition(target.rule)
        if definition.estimate is None:
            return None
        where = Label.parse(target.label)
        raw = self._session.package(where.package).targets[where.name]
        own = {k: v for k, v in raw.attrs.items() if k not in ("tags", "toolchain", "platform")}
        attrs = definition.validate(where.name, own, target.where)

        def parse(text: str) -> Label:
            return Label.parse(text.partition("#")[0], package=where.package, where=target.where)

        def of(text: str) -> Estimate | None:
            label = str(parse(text))
            return self.of(label) if label in self._graph.targets else None

        def files(text: str) -> Sequence[Path]:
            label = parse(text)
            return [] if str(label) in self._graph.targets else [self._session.root / label.path]

        recipes = [getattr(attrs, name) for name in definition.configs]
        asked = Asked(
            label=target.label,
            attrs=attrs,
            recipe=recipes[0] or {} if recipes else {},
            root=self._session.root,
            package=self._session.root / where.package,
            platform=self._platform(target.actions),
            of=of,
            files=files,
        )
        try:
            return definition.estimate(asked)
        except MxtError:
            raise
        except Exception as error:
            text = f"{type(error).__name__}: {error}".removesuffix(": ")
            raise GraphError(
                f"rule '{target.rule}' failed to estimate '{target.label}': {text}", where=target.where
            ) from error

    def _platform(self, actions: Sequence[ActionId]) -> Mapping[str, Any]:
        digests = (self._graph.actions[a].platform for a in actions)
        found = [self._graph.platforms[d] for d in digests if d is not None]
        return found[0] if found else {}


def _sum(ranges: Sequence[Range | None]) -> Range | None:
    known = [r for r in ranges if r is not None]
    if not known:
        return None
    return Range(sum(r.low for r in known), sum(r.high for r in known))


def _group_form(group: Group) -> dict[str, Any]:
    return {
        "label": group.label,
        "seconds": _value_form(group.seconds),
        "cost": _value_form(group.cost),
        "not_timed": [s.label for s in group.untimed],
        "stages": [
            {"label": s.label, "state": s.state, "estimate": s.estimate and _form(s.estimate)}
            for s in group.stages
        ],
    }


def _form(estimate: Estimate) -> dict[str, Any]:
    return {
        "seconds": _value_form(estimate.seconds),
        "cost": _value_form(estimate.cost),
        "figures": [_figure_form(f) for f in estimate.figures],
        "grids": [_grid_form(g) for g in estimate.grids],
        "notes": list(estimate.notes),
        "unknown": list(estimate.unknown),
    }


def _figure_form(figure: Figure) -> dict[str, Any]:
    return {**figure._asdict(), "value": _value_form(figure.value)}


def _grid_form(grid: Grid) -> dict[str, Any]:
    def cell(found: Cell) -> dict[str, Any]:
        return {**found._asdict(), "value": _value_form(found.value)}

    rows = [{"name": name, "cells": [cell(c) for c in cells]} for name, cells in grid.rows]
    return {"title": grid.title, "columns": list(grid.columns), "rows": rows, "note": grid.note}


def _value_form(value: Range | float | str | None) -> Any:
    return [value.low, value.high] if isinstance(value, Range) else value
