"""What a report tells, gathered from a receipt and from the evidence of the runs that it names.

A pure function of the receipt, the evidence and the code: the same report comes out whenever it is drawn.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mxt.action.canonical import restore
from mxt.errors import MxtError
from mxt.panels import FILE, MAX_BYTES, Panel, Read, Verdict, clean, read_panels
from mxt.receipt.names import action_name, stage_names
from mxt.receipt.receipt import Receipt, StatedAction
from mxt.store.digest import hash_bytes, open_regular
from mxt.store.layout import Layout
from mxt.store.realisation import Output, RunRecord
from mxt.store.records import RUN_TYPE, open_record

_VERDICT_BYTES = 1 << 20


@dataclass(frozen=True)
class Step:
    """One action. stage: its target's short name. run: None where another operator's result was used.

    executed: whether the build that wrote the receipt ran it, rather than found it.
    config: the recipe's fields that it was keyed by. reads: labels of the targets whose outputs it reads.
    """

    stage: str
    label: str
    action: str
    mnemonic: str
    key: str
    size: int
    run: RunRecord | None
    executed: bool
    config: Mapping[str, Any] = field(default_factory=dict)
    reads: tuple[str, ...] = ()
    panels: tuple[Panel, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def wall_s(self) -> float | None:
        try:
            return None if self.run is None else float(self.run.wall_s)
        except ValueError:
            return None


def gather(receipt: Receipt, layout: Layout) -> list[Step]:
    """Every action of a receipt, each after those it reads. layout: the store that may hold its evidence."""
    statement = receipt.statement
    stages = stage_names(statement.target, dict.fromkeys(a.id.label for a in statement.actions))
    steps = []
    for action in statement.actions:
        place = action_name(stages, action.id)
        run = _run(statement.records.get(f"run/{place}"))
        read = Read() if run is None else _evidence(layout, run)
        panels = read.panels
        if not any(isinstance(p, Verdict) for p in panels):
            panels += _test_verdict(layout, action)
        steps.append(
            Step(
                stages[action.id.label],
                action.id.label,
                action.id.name,
                action.mnemonic,
                action.key,
                sum(output.size for output in action.outputs.values()),
                run,
                run is not None and run.started >= statement.started,
                _config(action.form),
                tuple(o["action"].label for o in action.inputs_from.values() if "action" in o),
                panels,
                read.problems,
            )
        )
    return steps


def _run(quoted: Any) -> RunRecord | None:
    if quoted is None:
        return None
    try:
        return RunRecord.parse(open_record(quoted.data, RUN_TYPE).payload, name=quoted.run)
    except ValueError:
        return None


def _evidence(layout: Layout, run: RunRecord) -> Read:
    """The panels of a run, if it left any: only the bytes that its signed record names are shown."""
    if FILE not in run.evidence:
        return Read()
    path = layout.evidence(run.key, run.name) / FILE
    try:
        data = _bytes_of(path, MAX_BYTES)
    except FileNotFoundError:
        return Read(problems=("its evidence is not in this store",))
    except (OSError, MxtError) as error:
        return Read(problems=(f"its evidence cannot be read: {clean(str(error), 200)}",))
    if len(data) <= MAX_BYTES and hash_bytes(data) != run.evidence[FILE]:
        return Read(problems=("its evidence is not what the receipt names: it was changed afterwards",))
    return read_panels(data)


def _bytes_of(path: Path, limit: int) -> bytes:
    """At most one byte more than limit."""
    fd = open_regular(path)
    with os.fdopen(fd, "rb") as file:
        return file.read(limit + 1)


def _test_verdict(layout: Layout, action: StatedAction) -> tuple[Panel, ...]:
    """What a test said, where it left no sentence for people: its output "verdict", as in `mxt test`."""
    output: Output | None = action.outputs.get("verdict")
    if output is None or output.kind != "file" or output.size > _VERDICT_BYTES:
        return ()
    try:
        data = _bytes_of(Path(layout.blob(output.digest, output.executable)), _VERDICT_BYTES)
        found = json.loads(data) if hash_bytes(data) == output.digest else None
    except (OSError, MxtError, ValueError, RecursionError):
        return ()
    if not isinstance(found, dict) or type(found.get("passed")) is not bool:
        return ()
    summary = found.get("summary")
    name = f"{action.id} {'passed' if found['passed'] else 'did not pass'}"
    text = f"{name}: {clean(summary)}" if isinstance(summary, str) and summary else name
    return (Verdict(text, good=found["passed"]),)


def _config(form: Mapping[str, Any]) -> Mapping[str, Any]:
    config = form.get("config")
    try:
        return restore(config) if isinstance(config, dict) else {}
    except (ValueError, TypeError, RecursionError):
        return {}
