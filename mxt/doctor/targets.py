"""What targets need, against this machine, before a build starts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from mxt.doctor.finding import FAIL, OK, WARN, Finding
from mxt.doctor.network import reachable
from mxt.errors import MxtError
from mxt.execution.forecast import Forecast, forecast
from mxt.execution.preflight import Obstacle, obstacles
from mxt.execution.runner import Runner
from mxt.graph.graph import ActionGraph
from mxt.words import plural, size


def target_findings(area: str, root: Path, graph: ActionGraph, runner: Runner) -> Iterator[Finding]:
    """area: what the user named. The runner knows its sources."""
    plan = forecast(graph, runner)
    left = [f for f in plan if f.status != "cached"]
    cached = len(plan) - len(left)
    refused = sum(f.refused for f in plan)
    blocked = sum(f.behind is not None and not f.refused for f in plan)
    cannot = f", {refused} that cannot run" if refused else ""
    cannot += f", {blocked} behind those" if blocked else ""
    state = f": {len(left) - refused - blocked} to run{cannot}, {cached} cached" if left else ", all cached"
    yield Finding(area, OK, f"{plural(len(plan), 'action')}{state}")
    yield Finding(area, OK, f"needs {_needs(graph)}")
    for obstacle in obstacles(root, graph, runner):
        yield _obstacle(obstacle)
    yield from _network(left)


def _needs(graph: ActionGraph) -> str:
    """What the actions declare, in words."""
    actions = graph.actions.values()
    platforms = {a.platform for a in actions if a.platform is not None}
    parts = [", ".join(sorted(_platform(graph.platforms[p]) for p in platforms)) or "no platform"]
    used = {a.toolchain for a in actions if a.toolchain is not None}
    locks = {graph.images[t].name if t in graph.images else graph.toolchains[t] for t in used}
    parts.append(f"toolchain {', '.join(sorted(locks))}" if locks else "no toolchain")
    gpus = max((a.gpus for a in actions), default=0)
    if gpus:
        parts.append(plural(gpus, "GPU"))
    memory = max((a.memory_mb for a in actions), default=0)
    if memory:
        parts.append(f"{size(memory << 20)} of memory for its largest action")
    if any(a.network for a in actions):
        parts.append("the network")
    return "; ".join(parts)


def _platform(properties: object) -> str:
    assert isinstance(properties, dict)
    shown = [
        f"{k} {properties[k]}"
        for k in ("arch", "isa", "compute_units", "gpus", "threads")
        if properties.get(k)
    ]
    return f"platform with {', '.join(shown)}" if shown else "platform"


def _obstacle(obstacle: Obstacle) -> Finding:
    error = obstacle.error
    facts = "; ".join(line.strip() for line in error.excerpt.split("\n") if line.strip())
    what = f"{error.message} ({facts})" if facts else error.message
    may = "" if obstacle.certain else "may have to run: "
    return Finding(
        error.where or str(obstacle.actions[0]), FAIL if obstacle.fatal else WARN, may + what, error.hint
    )


def _network(left: list[Forecast]) -> Iterator[Finding]:
    asking = [f.action for f in left if f.action.network]
    if not asking:
        return
    if not reachable():
        mend = "connect to a network, set https_proxy, or build this target once where there is one"
        yield Finding(str(asking[0].id), FAIL, "needs the network, and there is no route and no proxy", mend)
    wanted = dict.fromkeys(
        name for action in asking for name in action.passthrough if name.endswith("_TOKEN")
    )
    for name in wanted:
        if not os.environ.get(name):
            what = f"{name} is not set; only private and gated repositories need it"
            yield Finding(str(asking[0].id), WARN, what, f"export {name}=...")


def broken(error: MxtError) -> Finding:
    """A workspace or target that cannot even be analysed."""
    return Finding(error.where or "targets", FAIL, error.message, error.hint)
