"""Finds the plan that a word of the command line means: a target's, a file, a receipt's or a build's.

A plan is an output or an input that is called "plan": what it decides, only the rules know. `NAME.probe`
makes it, and `NAME.plan.json` beside its MXTBUILD replaces that once somebody has pinned it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mxt.action.action import ActionId, SourceRef
from mxt.errors import GraphError, MxtError, UsageError
from mxt.store.digest import hash_bytes

if TYPE_CHECKING:
    from mxt.cli.session import Session
    from mxt.execution.build_record import BuildRecord
    from mxt.execution.forecast import Forecast
    from mxt.graph.graph import ActionGraph
    from mxt.store.realisation import RunRecord

PLAN = "plan"
SUFFIX = ".plan.json"
MAKER = ".probe"
EVIDENCE = "timings.json"


@dataclass(frozen=True)
class FoundPlan:
    """name: what people call it. origin: "measured", "cached", "pinned", "file", "receipt" or "build".

    place: the file it was read from, if any. key: of the action that made it, where that is known.
    run: how it was measured, evidence: what that run left in timings.json; both None if not known here.
    stale: why a build would make another plan; "" where it would not.
    """

    name: str
    origin: str
    data: bytes
    form: Mapping[str, Any]
    place: str = ""
    key: str = ""
    run: RunRecord | None = None
    evidence: Mapping[str, Any] | None = None
    stale: str = ""
    maker: ActionId | None = field(default=None, compare=False)

    @property
    def decisions(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.form["decisions"]
        return found


def parse_plan(data: bytes, where: str) -> dict[str, Any]:
    """Raises GraphError for what is no plan: a JSON object whose "decisions" hold plain values."""
    try:
        form = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise GraphError(
            f"not a plan: {str(error)[:120]}", where=where, hint="a plan is JSON; 'mxt plan pin' writes one"
        ) from None
    decisions = form.get("decisions") if isinstance(form, dict) else None
    if not isinstance(decisions, dict) or not decisions:
        raise GraphError(
            'not a plan: it has no "decisions"',
            where=where,
            hint="'mxt plan pin' writes a plan that was made",
        )
    return dict(form)


def find_plan(session: Session, text: str, other: str = "") -> FoundPlan:
    """The plan that `text` means. other: a label that chooses one where a build made several."""
    if text.endswith(".json"):
        path = Path(text)
        if not path.is_file():
            raise UsageError("there is no such file", where=text, hint="give a plan, a receipt or a label")
        return _of_receipt(session, path) if text.endswith(".dsse.json") else _of_file(path)
    if text.startswith(("/", ":", "@")):
        return of_label(session, text)
    build, _, label = text.partition("@")
    from mxt.execution.build_record import find_record

    try:
        record = find_record(session.store.layout.state, build)
    except UsageError:
        if label or build.startswith("last"):
            raise
        return of_label(session, text)
    return _of_build(session, record, text, label or (other if other.startswith(("/", ":")) else ""))


# ---- a target's plan ------------------------------------------------------------------------------


def of_label(session: Session, text: str) -> FoundPlan:
    """The plan that a target is built by now, pinned or made.

    Raises GraphError where it has none, or none was made yet.
    """
    label, graph = analyse(session, text)
    makers, pinned = plans_below(graph)
    if pinned and not makers:
        path = _one(sorted(pinned), label)
        return _of_pinned(session, path, label)
    maker = _one(makers, label, hint="a recipe that is probed has one")
    return of_maker(session, graph, maker)


def analyse(session: Session, text: str) -> tuple[str, ActionGraph]:
    """One canonical label and its graph. A pinned plan's `.probe` is no target: its recipe stands for it."""
    labels = session.resolve([text], keep_manual=True)
    if len(labels) != 1:
        raise UsageError(f"'{text}' is {len(labels)} targets; a plan belongs to one", hint="name one recipe")
    label = labels[0]
    package, _, name = label.rpartition(":")
    stem = name.removesuffix(MAKER)
    targets = session.package(package[2:]).targets if package.startswith("//") else {}
    if stem != name and name not in targets and stem in targets:
        label = f"{package}:{stem}"
    return label, session.analyse([label])


def plans_below(graph: ActionGraph) -> tuple[list[ActionId], set[str]]:
    """The actions that make a plan, and the workspace's files that some action reads as its plan."""
    below = {i for target in graph.wanted() for i in graph.below(target)}
    makers = [i for i in graph.closure(below) if any(o.name == PLAN for o in graph.actions[i].outputs)]
    return makers, {
        i.ref.path
        for action in graph.actions.values()
        for i in action.inputs
        if i.name == PLAN and isinstance(i.ref, SourceRef)
    }


def of_maker(session: Session, graph: ActionGraph, maker: ActionId) -> FoundPlan:
    """What an action made last; says whether that still is what a build would use."""
    now = current(session, graph, maker)
    stale = ""
    key = now.key
    if now.status != "cached":
        stale = _why(now)
        key = session.store.history.previous(maker.label, maker.name)
        if key == now.key:
            key = None  # its result is gone
    found = session.store.actions.lookup(key) if key else None
    if key is None or found is None or PLAN not in found.outputs:
        raise GraphError(f"'{maker}' has made no plan yet", hint=f"build it first: mxt build {maker.label}")
    data = session.store.cas.read(found.outputs[PLAN].digest)
    run = session.store.actions.latest_run(key)
    return FoundPlan(
        str(maker),
        "measured" if run is not None and run.operator == session.store.key.keyid else "cached",
        data,
        parse_plan(data, str(maker)),
        key=key,
        run=run,
        evidence=_evidence(session, key, run),
        stale=stale,
        maker=maker,
    )


def current(session: Session, graph: ActionGraph, maker: ActionId) -> Forecast:
    """What a build would do about an action: its key and result where they can be known."""
    from mxt.execution.forecast import forecast

    return forecast(graph, session.runner(graph), graph.closure([maker]))[-1]


def _why(now: Forecast) -> str:
    from mxt.cli.progress import short_change

    reasons = [short_change(c._asdict()) for c in now.changes if c.field]
    reasons += [f"{maker} is made again" for maker in dict.fromkeys(map(str, now.waits.values()))]
    return "; ".join(reasons[:3]) or "its result is not kept"


def _of_pinned(session: Session, path: str, label: str) -> FoundPlan:
    """A pinned plan, with the evidence of the run that measured it if that was here."""
    data = _read(session.root / path, path)
    form = parse_plan(data, path)
    package, _, _ = label.rpartition(":")
    maker = f"{package}:{path.rpartition('/')[2].removesuffix(SUFFIX)}{MAKER}"
    digest = hash_bytes(data)
    for entry in reversed(session.store.history.history(maker)):
        found = session.store.actions.lookup(entry.key)
        if found is not None and PLAN in found.outputs and found.outputs[PLAN].digest == digest:
            run = session.store.actions.latest_run(entry.key)
            evidence = _evidence(session, entry.key, run)
            return FoundPlan(label, "pinned", data, form, path, entry.key, run, evidence)
    return FoundPlan(label, "pinned", data, form, path)


def _evidence(session: Session, key: str, run: RunRecord | None) -> Mapping[str, Any] | None:
    """What the run left about its candidates; None where it is not here or of another form."""
    if run is None:
        return None
    try:
        found = json.loads((session.store.layout.evidence(key, run.name) / EVIDENCE).read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("candidates"), list) else None


# ---- files, receipts, builds ---------------------------------------------------------------------


def _of_file(path: Path) -> FoundPlan:
    data = _read(path, str(path))
    return FoundPlan(str(path), "file", data, parse_plan(data, str(path)), str(path))


def _of_receipt(session: Session, path: Path) -> FoundPlan:
    from mxt.receipt.receipt import read_receipt

    statement = read_receipt(path).statement
    digests = {a.outputs[PLAN].digest for a in statement.actions if PLAN in a.outputs}
    digests = digests or {d for a in statement.actions if (d := _input(a.form))}
    digest = _one(sorted(digests), str(path))
    # the plan lies beside the receipt, or where its workspace pinned it
    beside = [p / "plan.json" for p in sorted(path.parent.iterdir()) if p.is_dir()]
    for folder in path.absolute().parents:
        if folder.name == "mxt-out":
            beside += [folder.parent / d.path for d in statement.dependencies if d.path.endswith(SUFFIX)]
    return _of_digest(session, digest, "receipt", str(path), beside)


def _of_build(session: Session, record: BuildRecord, text: str, label: str) -> FoundPlan:
    """What a build made or found; for a pinned plan what its actions read."""
    if label:
        label = session.resolve([label], keep_manual=True)[0].removesuffix(MAKER)
    digests: dict[str, str] = {}
    pinned: dict[str, str] = {}
    for step in record.steps:
        if not step.key or (label and step.label != label and not step.label.startswith(f"{label}.")):
            continue
        found = session.store.actions.lookup(step.key)
        if found is not None and PLAN in found.outputs:
            digests[step.label] = found.outputs[PLAN].digest
            continue
        try:
            digest = _input(json.loads(session.store.cas.read(step.key)))
        except (MxtError, ValueError):
            continue  # collected since, or of a build that failed
        if digest:
            pinned[step.label] = digest
    users = {d: user for user, d in reversed((digests or pinned).items())}
    if len(users) > 1:
        raise UsageError(
            f"build {record.identity} used {len(users)} plans: {', '.join(sorted(users.values())[:4])}",
            hint=f"choose one: {text.partition('@')[0]}@LABEL",
        )
    build = f"build {record.identity}"
    digest = _one(list(users), f"{label} in {build}" if label else build)
    package, _, name = users[digest].rpartition(":")
    place = session.root / package[2:] / f"{name.rpartition('.')[0]}{SUFFIX}"
    return _of_digest(session, digest, "build", f"{build}, {users[digest]}", [place])


def _input(form: Mapping[str, Any]) -> str:
    """The digest of the input called "plan" in an action's form; "" where there is none."""
    found = form.get("inputs", {}).get(PLAN)
    return str(found["digest"]) if isinstance(found, dict) else ""


def _of_digest(session: Session, digest: str, origin: str, name: str, places: Iterable[Path]) -> FoundPlan:
    """The plan with that digest, from the store or from where it may lie."""
    if session.store.cas.has(digest):
        data = session.store.cas.read(digest)
        return FoundPlan(name, origin, data, parse_plan(data, name))
    for place in places:
        if place.is_file() and hash_bytes(data := place.read_bytes()) == digest:
            return FoundPlan(name, origin, data, parse_plan(data, name))
    raise GraphError(
        f"the plan {digest[:12]} is not kept here",
        where=name,
        hint="it was pinned, and the file is another now, or it was made elsewhere; give the plan's file",
    )


def _read(path: Path, where: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise GraphError(f"cannot read the plan: {error.strerror}", where=where) from None


def _one(found: list[Any], of: str, hint: str = "") -> Any:
    """The single one. Raises GraphError where there is none, or where a name must choose."""
    if not found:
        raise GraphError(f"'{of}' has no plan", hint=hint or "only what was probed has one")
    if len(found) > 1:
        raise GraphError(
            f"'{of}' has {len(found)} plans: {', '.join(map(str, found[:4]))}", hint="name one of them"
        )
    return found[0]
