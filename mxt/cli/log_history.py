"""mxt log --history: every run of an action that this store knows, failed ones too."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mxt.action.action import ActionId
from mxt.action.explain import Change, compare
from mxt.cli.cells import pad, shorten
from mxt.cli.log_builds import all_records, local_time
from mxt.errors import StoreError
from mxt.store.measure import run_time
from mxt.words import SHOWN, duration

if TYPE_CHECKING:
    from mxt.execution.build_record import BuildRecord
    from mxt.store.realisation import RunRecord
    from mxt.store.store import Store

_WIDE = 114
_CLOCK_S, _SLACK_S = 0.002, 1.0  # times are kept in milliseconds; a build's length leaves out its beginning


@dataclass(frozen=True)
class Run:
    """One run. number: from 1, the oldest. wall_s: seconds, None where not known. folder: of its evidence,
    which may be gone. build: the identity of its build, "" if not known.

    status: ok, failed, interrupted, running, or unfinished (failed or interrupted, no record says which).
    """

    number: int
    name: str
    started: str
    status: str
    wall_s: float | None
    key: str
    why: tuple[Change, ...]
    folder: Path
    machine: dict[str, Any]
    sandbox: str
    resumed: bool
    build: str

    @property
    def reason(self) -> str:
        """Why it ran, in a few words: what changed, by field."""
        return ", ".join(change.field or change.new for change in self.why)

    def form(self) -> dict[str, Any]:
        return {
            "run": self.number,
            "name": self.name,
            "started": self.started,
            "status": self.status,
            "wall_s": self.wall_s,
            "key": self.key,
            "why": [change._asdict() for change in self.why],
            "machine": self.machine,
            "sandbox": self.sandbox,
            "resumed": self.resumed,
            "build": self.build,
            "evidence": self.folder.is_dir(),
        }


def runs_of(store: Store, identity: ActionId) -> list[Run]:
    """All runs of an action, oldest first."""
    builds, _ = all_records(store.layout.state)
    remembered = store.history.history(identity.label, identity.name)
    keys = dict.fromkeys(entry.key for entry in remembered)
    for record in builds:
        for step in record.steps:
            if step.key and (step.label, step.action) == identity:
                keys[step.key] = None
    keys.update(dict.fromkeys(_attempted(store, identity)))
    found: list[tuple[str, str, RunRecord | None]] = []
    for key in keys:
        known = {run.name: run for run in store.actions.runs(key)}
        names = known.keys() | _folders(store.layout.evidence(key))
        for name in names:
            run = known.get(name)
            if run is None or (run.label, run.action) == identity:
                found.append((name, key, run))
    times = [(entry.time, entry.key) for entry in remembered]
    out = []
    seen: set[str] = set()
    for number, (name, key, run) in enumerate(sorted(found, key=lambda item: item[:2]), 1):
        began = run_time(name)
        status, wall_s, build = _ending(store, identity, key, began, run, builds)
        out.append(
            Run(
                number=number,
                name=name,
                started=run.started if run else _iso(began),
                status=status,
                wall_s=wall_s,
                key=key,
                why=tuple(_why(store, key, began, times, kept=key in seen)),
                folder=store.layout.evidence(key, name),
                machine=dict(run.machine) if run else {},
                sandbox=run.sandbox if run else "",
                resumed=run.resumed if run else False,
                build=build,
            )
        )
        if run is not None:
            seen.add(key)
    return out


def _attempted(store: Store, identity: ActionId) -> list[str]:
    """The key of the last attempt: of one that no build finished, it is the only trace."""
    from mxt.execution.attempts import read_attempt

    path = read_attempt(store.layout.state / "attempts.log", identity)
    return [path.parent.name] if path is not None and path.is_dir() else []


def _folders(folder: Path) -> set[str]:
    try:
        return {entry.name for entry in os.scandir(folder) if entry.is_dir()}
    except OSError:
        return set()


def _ending(
    store: Store,
    identity: ActionId,
    key: str,
    began: float,
    run: RunRecord | None,
    builds: Sequence[BuildRecord],
) -> tuple[str, float | None, str]:
    """Status, seconds and build of a run; a build's record tells how one ended that left no record itself."""
    status, wall_s, build = "unfinished", None, ""
    for record in builds:  # newest first: the last that began before it and ran this key
        start = datetime.fromisoformat(record.began).timestamp()
        if not start - _CLOCK_S <= began <= start + record.wall_s + _SLACK_S:
            continue
        ended = next((s for s in record.steps if (s.label, s.action, s.key) == (*identity, key)), None)
        if ended is not None and ended.status in ("executed", "failed", "interrupted"):
            build = record.identity
            if ended.status != "executed":
                status, wall_s = ended.status, ended.wall_s
            break
    if run is not None:
        return "ok", float(run.wall_s), build
    if not build and store.locks.held(key):
        status = "running"
    return status, wall_s, build


def _why(
    store: Store, key: str, began: float, times: Sequence[tuple[float, str]], *, kept: bool
) -> list[Change]:
    """The form of a run's key against that of the key which the action had before it.

    kept: whether an earlier run under the key is known, which a gc would have deleted with its result.
    """
    before = [known for when, known in times if when <= began]
    if not before:
        return [Change("", "", "never built here")]
    if before[-1] == key:
        how = "its outputs were missing or damaged" if kept else "its result was deleted by a gc or a repair"
        return [Change("", "", how)]
    try:
        old, new = (json.loads(store.cas.read(one)) for one in (before[-1], key))
    except (StoreError, ValueError):
        return [Change("", "", "a form is no longer kept")]
    return compare(old, new)


def _iso(seconds: float) -> str:
    return (
        datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        if seconds
        else ""
    )


def history_table(runs: Sequence[Run], columns: int) -> Iterator[str]:
    """A line a run, newest first; the machine and the sandbox where there is room for them."""
    wide = columns >= _WIDE
    digits = max(2, len(str(len(runs))))
    statuses = ["ok, resumed" if run.resumed and run.status == "ok" else run.status for run in runs]
    room = max(map(len, ["status", *statuses]))
    extra = f"{'sandbox':<10}  {'machine':<24}  " if wide else ""
    yield (f"{'#':>{digits}}  {'began':<16}  {'took':>9}  {'status':<{room}}  {'key':<{SHOWN}}  {extra}why")
    for run, status in zip(reversed(runs), reversed(statuses), strict=True):
        took = "" if run.wall_s is None else duration(run.wall_s)
        line = (
            f"{run.number:>{digits}}  {pad(local_time(run.started), 16)}  {took:>9}  {status:<{room}}  "
            f"{run.key[:SHOWN]}  "
        )
        if wide:
            cpu = shorten(str(run.machine.get("cpu", "")), 24)
            line += f"{shorten(run.sandbox, 10):<10}  {pad(cpu, 24)}  "
        yield line + shorten(run.reason, columns - len(line))
