"""Before anything runs: what of this build cannot be done on this machine.

Said at once and not after hours, when the first such action's turn comes. What the machine has is compared
first, without a look at the store; only where something is missing is it asked which actions have no
result, because what has one needs no device.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mxt.action.action import Action, ActionId, Need, Refusal
from mxt.action.platform import check_machine
from mxt.errors import MxtError, PlatformError, RefusedError
from mxt.execution.forecast import forecast
from mxt.execution.machine import gpu_count, memory_mb
from mxt.execution.runner import Runner
from mxt.graph.graph import ActionGraph

_SHOWN = 3
_ALSO = "also: "


@dataclass(frozen=True)
class Lack:
    """Something that is lacking. kind: "refused" (whatever the machine), "variable" (of the environment),
    "platform", "toolchain", "gpus" or "memory".

    error: what, and the way out. actions: all that declare a need for it.
    """

    kind: str
    error: MxtError
    actions: tuple[ActionId, ...]


@dataclass(frozen=True)
class Obstacle:
    """A lack that matters. actions: those that run for all that is known, or else perhaps.

    certain: their keys have no result, or they were never built here. An action whose inputs are still
    to be made may turn out to have a result: it is stopped when its turn comes. Not so where it is refused
    on every machine: that its inputs come out as they did is no reason to spend hours on them.
    """

    kind: str
    error: MxtError
    actions: tuple[ActionId, ...]
    certain: bool

    @property
    def fatal(self) -> bool:
        """Too little memory is none: declared is what an action may need at worst."""
        return self.certain and self.kind != "memory"


def obstacles(root: Path, graph: ActionGraph, runner: Runner) -> list[Obstacle]:
    """What keeps actions without a result from running here.

    Costs a millisecond or two where nothing is missing. Sources must have been prepared.
    """
    lacks = list(machine_lacks(root, graph))
    contained = [identity for identity, a in graph.actions.items() if a.toolchain in graph.images]
    if not lacks and not contained:
        return []
    affected = dict.fromkeys([*contained, *(identity for lack in lacks for identity in lack.actions)])
    try:
        plan = {f.action.id: f.status for f in forecast(graph, runner, graph.closure(affected))}
    except MxtError:
        return []  # a source that is gone, say: the build finds it and names the action
    # asking an engine takes a tenth of a second: only for what may have to run
    lacks += image_lacks(graph, [i for i in contained if plan[i] in ("run", "later")])
    found = []
    for lack in lacks:
        perhaps = [i for i in lack.actions if plan[i] in ("run", "later")]
        if lack.kind == "refused":
            runs = perhaps
        else:
            runs = [i for i in perhaps if plan[i] == "run" or not runner.history(i)]
        stopped = runs or perhaps
        if stopped:
            found.append(Obstacle(lack.kind, _located(lack.error, stopped), tuple(stopped), bool(runs)))
    return found


def machine_lacks(root: Path, graph: ActionGraph) -> Iterator[Lack]:
    """Everything but images that some action of the graph declares and this machine has not; no result is
    looked up."""
    platforms: dict[str, list[ActionId]] = defaultdict(list)
    toolchains: dict[tuple[str, bool], list[ActionId]] = defaultdict(list)
    gpus: dict[int, list[ActionId]] = defaultdict(list)
    memory: dict[int, list[ActionId]] = defaultdict(list)
    refused: dict[Refusal, list[ActionId]] = defaultdict(list)
    lacking: dict[Need, list[ActionId]] = defaultdict(list)
    there, megabytes = gpu_count(), memory_mb()
    for identity, action in graph.actions.items():
        if action.refusal is not None:
            refused[action.refusal].append(identity)
            continue  # whatever the machine has, it would not run
        for need in action.needs:
            if not any(os.environ.get(name) for name in need.one_of):
                lacking[need].append(identity)
        if action.platform is not None:
            platforms[action.platform].append(identity)
        if action.toolchain is not None and action.toolchain not in graph.images:
            toolchains[action.toolchain, _imports(action)].append(identity)
        if action.gpus > there:
            gpus[action.gpus].append(identity)
        if action.memory_mb > megabytes:
            memory[action.memory_mb].append(identity)
    # first what was asked for itself; then what nobody can change, before what a command mends
    asked = set(graph.requested)
    order = sorted(
        refused.items(), key=lambda r: (not asked & {a.label for a in r[1]}, r[0].word != "absent")
    )
    for refusal, actions in order:
        yield Lack("refused", RefusedError(refusal.message, hint=refusal.hint), tuple(actions))
    for need, actions in lacking.items():
        yield Lack("variable", RefusedError(need.message, hint=need.hint), tuple(actions))
    for digest, actions in platforms.items():
        try:
            check_machine(graph.platforms[digest])
        except MxtError as error:
            yield Lack("platform", error, tuple(actions))
    for (digest, imports), actions in toolchains.items():
        wrong = _toolchain_error(root, graph.toolchains[digest], imports=imports)
        if wrong is not None:
            yield Lack("toolchain", wrong, tuple(actions))
    for count, actions in gpus.items():
        yield Lack("gpus", gpu_error(count, there), tuple(actions))
    for count, actions in memory.items():
        problem = f"declares {count} MiB of memory, this machine has {megabytes}"
        yield Lack("memory", PlatformError(problem, hint="it runs alone, and may be killed"), tuple(actions))


def image_lacks(graph: ActionGraph, identities: Iterable[ActionId]) -> Iterator[Lack]:
    """Images of these actions that are not pinned or not here, or that cannot do what the actions ask."""
    from mxt.execution.image_look import container

    users: dict[tuple[str, bool], list[ActionId]] = defaultdict(list)
    for identity in identities:
        action = graph.actions[identity]
        if action.refusal is None and action.toolchain is not None:
            users[action.toolchain, _imports(action)].append(identity)
    for (key, imports), actions in users.items():
        try:
            container(graph.images[key], python=imports, bash=not imports)
        except MxtError as error:
            yield Lack("toolchain", error, tuple(actions))


def gpu_error(wanted: int, there: int) -> PlatformError:
    return PlatformError(
        f"needs {wanted} GPU{'s' if wanted > 1 else ''}, this machine has {there}",
        hint="build on a machine that has them, or fetch a result made on one",
    )


def one_line(obstacle: Obstacle) -> str:
    """For a warning: which actions, and what they lack."""
    lines = [line.strip() for line in obstacle.error.excerpt.splitlines()]
    facts = next((line for line in lines if line and not line.startswith(_ALSO)), "")
    what = f"{obstacle.error.message} ({facts})" if facts else obstacle.error.message
    may = "" if obstacle.certain else " may have to run:"
    return f"{_listed(obstacle.actions)}:{may} {what}"


def _imports(action: Action) -> bool:
    """Whether an action imports from the toolchain; a genrule's only stands in its key."""
    return action.entry != "genrule"


def _toolchain_error(root: Path, lock_path: str, *, imports: bool) -> MxtError | None:
    if not imports:
        return None
    from mxt.action.toolchain_check import check, memory_of
    from mxt.action.toolchain_lock import mismatch, read_lock
    from mxt.execution.prepare import site_packages

    try:
        lock = read_lock(root / lock_path, lock_path)
        site = Path(os.path.realpath(site_packages()))
        differences = check(lock, site, state=memory_of(site))
    except MxtError as error:
        return error
    return mismatch(lock, differences) if differences else None


def _located(error: MxtError, actions: Sequence[ActionId]) -> MxtError:
    """The error with the actions it stops: the first as its place, where it has none."""
    if not error.where:
        error.where = str(actions[0])
        if len(actions) > 1:
            more = f"    {_ALSO}{_listed(actions[1:])}"
            error.excerpt = f"{error.excerpt}\n{more}" if error.excerpt else more
    else:
        error.hint = f"{error.hint}\n  in: {_listed(actions)}" if error.hint else f"in {_listed(actions)}"
    return error


def _listed(actions: Sequence[ActionId]) -> str:
    shown = ", ".join(str(i) for i in actions[:_SHOWN])
    return shown if len(actions) <= _SHOWN else f"{shown} and {len(actions) - _SHOWN} more"
