"""Two receipts side by side: also of other machines and operators, as a receipt holds every action's form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mxt.action.parting import Step
from mxt.receipt.names import action_name, stage_names
from mxt.receipt.receipt import Receipt, Statement
from mxt.store.realisation import RunRecord
from mxt.store.records import RUN_TYPE, open_record


def steps_of(receipt: Receipt) -> list[Step]:
    """The actions of a receipt, each after those it reads, by the names of their stages."""
    statement = receipt.statement
    stages = stage_names(statement.target, dict.fromkeys(a.id.label for a in statement.actions))
    steps = []
    for action in statement.actions:
        name = action_name(stages, action.id)
        makers = {
            given: frozenset([action_name(stages, origin["action"])])
            for given, origin in action.inputs_from.items()
            if "action" in origin and origin["action"].label in stages
        }
        outputs = {o: f"{output.kind} {output.digest}" for o, output in action.outputs.items()}
        run = _run(statement, name)
        facts = {} if run is None else _circumstances(run)
        steps.append(Step(name, action.key, action.form, outputs, makers, "", facts))
    return steps


def machines_of(receipt: Receipt) -> list[str]:
    """The processors that the runs of a receipt happened on, each once."""
    found: dict[str, None] = {}
    for name in receipt.statement.records:
        if (
            name.startswith("run/")
            and (run := _run(receipt.statement, name.removeprefix("run/"))) is not None
        ):
            found[str(run.machine.get("cpu", ""))] = None
    return [name for name in found if name]


def _run(statement: Statement, name: str) -> RunRecord | None:
    quoted = statement.records.get(f"run/{name}")
    if quoted is None:
        return None
    try:
        return RunRecord.parse(open_record(quoted.data, RUN_TYPE).payload)
    except ValueError:
        return None


def _circumstances(run: RunRecord) -> Mapping[str, Any]:
    return {"machine": dict(run.machine), "sandbox": run.sandbox, "resumed": run.resumed}
