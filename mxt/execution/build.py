"""One build from graph to result: hash sources, run the scheduler, link results, write receipts."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mxt.action.action import ActionId
from mxt.errors import GraphError, MxtError
from mxt.execution.durations import Durations
from mxt.execution.environment import Environments
from mxt.execution.events import Events
from mxt.execution.machine import gpu_count, memory_mb
from mxt.execution.preflight import obstacles, one_line
from mxt.execution.runner import Found, Runner
from mxt.execution.scheduler import Limits, Outcome, Scheduler
from mxt.execution.sources import Sources
from mxt.graph.graph import ActionGraph
from mxt.graph.target import AnalysedTarget
from mxt.loading.reads import Stat
from mxt.store.store import Store

OUTPUTS = "mxt-out"


@dataclass
class Built:
    """How a build went. results: by action. links: of bundles, below the root -> target, as left in mxt-out.

    shown: requested targets' outputs by their paths through mxt-out -> where this build's own lies (another
    may have turned the link since), and whether it is a folder.
    looked_at: every source with its stat tuple. errors: everything that went wrong.
    """

    outcome: Outcome
    results: dict[ActionId, Found]
    links: dict[str, str] = field(default_factory=dict)
    receipts: list[str] = field(default_factory=list)
    shown: dict[str, tuple[str, bool]] = field(default_factory=dict)
    looked_at: Mapping[str, Stat | None] = field(default_factory=dict)
    errors: list[MxtError] = field(default_factory=list)
    wall_s: float = 0.0


@dataclass
class Options:
    """How to build; nothing here changes what is made."""

    jobs: int | None = None
    keep_going: bool = False
    sandbox: bool = True


class Forgotten(MxtError):  # noqa: N818 - it is caught: the whole way is gone instead
    """A result that a kept graph counted on is not there any more."""


ReceiptWriter = Callable[[AnalysedTarget, Path, Mapping[ActionId, Found]], Path]


def build(
    root: Path,
    store: Store,
    graph: ActionGraph,
    events: Events,
    options: Options,
    *,
    own_rules: Mapping[str, Mapping[str, bytes]],
    write_receipt: ReceiptWriter,
    known: Mapping[ActionId, str] | None = None,
    tick: Callable[[], None] | None = None,
    warn: Callable[[str], None] = lambda _: None,
) -> Built:
    """Bring every requested target up to date. Failures of actions are in the result, not raised.

    known: keys of actions outside the graph that some in it read. Raises Forgotten, before anything is
    done, where one of them has no result any more.
    """
    began = time.monotonic()
    store.create()
    store.cas.settle_later = True
    store.outputs.register_root(root / OUTPUTS)
    lease = store.lease()
    sources = Sources(root, store)
    environments = Environments(
        root,
        store.layout.root / "toolchains",
        graph.toolchains,
        graph.platforms,
        own_rules,
        note=lambda text: events.emit("note", text=text),
        images=graph.images,
    )
    runner = Runner(
        root, store, graph, sources, environments, sandbox=options.sandbox, lease=lease, warn=warn
    )
    durations = Durations(store.layout.state / "durations.sqlite")
    cores = len(os.sched_getaffinity(0))
    limits = Limits(options.jobs or cores, max(cores, options.jobs or 0), memory_mb(), gpu_count())
    counts: dict[str, int] = {}
    success = begun = False
    try:
        if known and not runner.recall(known):
            raise Forgotten("a result is gone")
        begun = True
        events.emit("build_started", targets=list(graph.requested), actions=len(graph.actions))
        sources.prepare(graph.sources())
        found = obstacles(root, graph, runner)
        fatal = [o.error for o in found if o.fatal and not options.keep_going]
        for obstacle in found:
            if obstacle.error not in fatal:
                warn(one_line(obstacle))
        if fatal:
            return Built(Outcome({}, {}, [], False), {}, errors=fatal, wall_s=time.monotonic() - began)
        scheduler = Scheduler(
            graph, runner, events, limits, durations, keep_going=options.keep_going, tick=tick
        )
        outcome = scheduler.run()
        counts = outcome.counts
        results = {i: f for i in graph.actions if (f := runner.result(i)) is not None}
        built = Built(outcome, results, errors=list(outcome.errors))
        try:
            store.cas.settle()
        except MxtError as error:
            built.errors.append(error)
        if not outcome.interrupted:
            _link_results(root, store, graph, results, built, write_receipt)
        built.looked_at = sources.looked_at()
        built.wall_s = time.monotonic() - began
        success = not built.errors and not outcome.interrupted
        return built
    finally:
        runner.close()
        environments.close()
        durations.save()
        store.close()
        lease.release()
        wall_s = round(time.monotonic() - began, 3)
        if begun:
            events.emit("build_finished", counts=counts, wall_s=wall_s, success=success)


def _link_results(
    root: Path,
    store: Store,
    graph: ActionGraph,
    results: Mapping[ActionId, Found],
    built: Built,
    write_receipt: ReceiptWriter,
) -> None:
    """mxt-out for every requested target that is whole; bundles get their receipt."""
    # bundles after everything that they may share, as their links lead to where those lead then
    wanted = graph.wanted()
    plain = [target for target in wanted if not target.members]
    for target in plain + [target for target in reversed(wanted) if target.members]:
        if any(identity not in results for identity in graph.below(target)):
            continue  # what has a result has all that it was made from
        place = out_place(target.label)
        try:
            if target.members:
                _link_bundle(root, store, graph, target, place, built)
                if target.receipt:
                    receipt = write_receipt(target, root / place / "receipt.dsse.json", results)
                    built.receipts.append(os.path.relpath(receipt, root))
            elif target.actions:
                _link_target(root, store, target, place, results, built)
        except MxtError as error:
            built.errors.append(error)


def out_place(label: str) -> str:
    """Where a target's results are linked, relative to the root: mxt-out/<package>/<target>."""
    package, _, name = label.removeprefix("@mxt").removeprefix("//").rpartition(":")
    return f"{OUTPUTS}/{package}/{name}" if package else f"{OUTPUTS}/{name}"


def _link_target(
    root: Path,
    store: Store,
    target: AnalysedTarget,
    place: str,
    results: Mapping[ActionId, Found],
    built: Built,
) -> None:
    several = any(identity.name for identity in target.actions)
    if several:
        _make_folder(root, place, target.label, own=True)
    for identity in target.actions:
        realisation = results[identity].realisation
        assert realisation is not None
        out = store.outputs.materialise(realisation)
        link = f"{place}/{identity.name}" if identity.name else place
        _make_link(root, store, target.label, link, out)
        for output in realisation.outputs.values():
            built.shown[f"{link}/{output.path}"] = (f"{out}/{output.path}", output.kind == "dir")
    if several:
        _remove_links(root / place, {identity.name for identity in target.actions})


def _link_bundle(
    root: Path, store: Store, graph: ActionGraph, target: AnalysedTarget, place: str, built: Built
) -> None:
    folder = root / place
    _make_folder(root, place, target.label, own=True)
    names: dict[str, str] = {}
    for member in target.members:
        if not (graph.targets[member].actions or graph.targets[member].members):
            continue
        name = short_name(member, target.label)
        if name in names:
            raise GraphError(f"'{target.label}' bundles two targets called '{name}'", where=target.where)
        names[name] = member
        link = f"{place}/{name}"
        _make_link(root, store, target.label, link, root / out_place(member))
        built.links[link] = os.readlink(root / link)
    _remove_links(folder, names)


def _remove_links(folder: Path, keep: Container[str]) -> None:
    """Links of members or actions that a target no longer has."""
    for entry in folder.iterdir():
        # what begins so is another build's, about to be renamed
        if entry.is_symlink() and entry.name not in keep and not entry.name.startswith(".mxt-"):
            entry.unlink(missing_ok=True)


def short_name(member: str, bundle: str) -> str:
    """What a bundle calls a member: "train" for //p:x.train in //p:x, otherwise its name, "/" as "_"."""
    name, own = member.rpartition(":")[2], bundle.rpartition(":")[2]
    return name.removeprefix(f"{own}.").replace("/", "_")


def _make_folder(root: Path, place: str, label: str, *, own: bool = False) -> None:
    """A folder below mxt-out. Raises GraphError where another target's link is in the way.

    own: the folder is the target's own place, where a link of its own may be.
    """
    folder = root
    parts = place.split("/")
    for i, part in enumerate(parts):
        folder = folder / part
        if i and folder.is_symlink():
            if own and i == len(parts) - 1:
                folder.unlink()  # this target had one action before, and has several now
                continue
            raise GraphError(
                f"the results of '{label}' would lie in '{'/'.join(parts[: i + 1])}', another target's",
                hint="rename the target or the package; or delete that link, if its target is gone",
            )
    folder.mkdir(parents=True, exist_ok=True)


def _make_link(root: Path, store: Store, label: str, link: str, to: Path) -> None:
    path = root / link
    _make_folder(root, link.rpartition("/")[0], label)
    if path.is_dir() and not path.is_symlink() and not _was_ours(root, path):
        raise GraphError(
            f"'{link}' is a folder, where a link to a result must be",
            hint="another package's results lie there: rename the target, or delete mxt-out",
        )
    store.outputs.link_target(path, to)


def _was_ours(root: Path, folder: Path) -> bool:
    """Whether a folder holds the links of a target that had several actions, not a package's results."""
    package = root / folder.relative_to(root / OUTPUTS)
    return not (package / "MXTBUILD").exists() and all(p.is_symlink() for p in folder.iterdir())
