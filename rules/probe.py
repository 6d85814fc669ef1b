"""Measures how this machine runs the recipe's shapes best, and writes the choice down as the plan.

plan.json holds decisions only, so a probe that chooses the same again changes nothing downstream;
the timings are evidence. A step here is forward, a plain cross-entropy and backward: TRL's loss and the
optimizer are left out, as they cost every candidate the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mxt.rule import Attributes, Config, Label, Refusal, Resources, Run, StageError, Target, not_yet
from rules._refusals import on_gpu

VERSION = 1
ESTIMATE = "_estimate.probe"
KEYED = (
    "meta.seed",
    "hardware.gpus",
    "hardware.env",
    "model.trust_remote_code",
    "autotune.policy",
    "autotune.budget_s",
    "autotune.search",
    "autotune.attention",
    "autotune.gemm",
    "autotune.compile",
    "autotune.recompute",
    "autotune.collectives",
    "autotune.micro_batch",
    "autotune.steps",
    "data.pack.max_length",
    "train.parallel",
    "train.lora.r",
    "train.lora.targets",
    "train.lora.base",
    "train.max_steps",
    "train.batch_size",
    "train.determinism",
    "train.dtype",
)
# For epochs: how many steps they make depends on the data. The probe does not read it, as each new row
# would measure anew, and would let noise choose anew; autotune.steps says it where it matters.
UNKNOWN_STEPS = 1000


class Attrs(Attributes):
    """model: a model folder, of which config.json is read."""

    config: Config
    model: Label


def actions(target: Target) -> None:
    config = target.config
    target.action(
        run=probe,
        mnemonic="Probe",
        inputs={"model": target.attrs.model},
        outputs={"plan": "plan.json"},
        resources=Resources(cpus=1, memory_mb=2048, gpus=config["hardware.gpus"], exclusive=True),
        environment=config["hardware.env"],
        refuse=on_gpu("the probe", config) or _beyond(config),
    )


def _beyond(config: Mapping[str, Any]) -> Refusal | None:
    """What this probe does not measure yet, on a CPU."""
    for field, known in (
        ("autotune.search", "budget"),
        ("autotune.gemm", ("default",)),
        ("autotune.recompute", ("none",)),
    ):
        if config[field] not in (known, list(known)):
            return not_yet(f"a probe with {field} other than its default", hint=f"leave {field} out")
    return None


def probe(run: Run) -> None:
    """plan.json; evidence: timings.json with every candidate, its figures or the reason against it."""
    import json

    from rules._model_folder import check_config
    from rules._plan import plan_form, read_model_config, shape_of, write_plan
    from rules._probe.candidates import enumerate_candidates
    from rules._probe.choose import Measurement, choose
    from rules._probe.legality import machine, why_illegal

    recipe = run.config
    if recipe["autotune.policy"] != "aot_only":
        raise StageError(f"autotune.policy is '{recipe['autotune.policy']}'", hint="it must be 'aot_only'")
    check_config(run.inputs["model"])
    model_config = read_model_config(run.inputs["model"])
    shape = shape_of(model_config, recipe)
    memory, compiler = machine()
    measurements = [
        Measurement(c, reason=why_illegal(c, shape, memory, compiler)) for c in enumerate_candidates(recipe)
    ]
    steps = recipe["autotune.steps"] or recipe["train.max_steps"] or UNKNOWN_STEPS

    from rules._runtime import prepare

    prepare(run, deterministic=recipe["train.determinism"] == "strict")
    from rules._code import may_run, register
    from rules._probe.measure import measure

    if may_run(run.inputs["model"], recipe.get("model.trust_remote_code")):
        register(run.inputs["model"].absolute())

    scale = measure(measurements, model_config, recipe, steps, run.report)
    winner, rows = choose(measurements, shape["batch_size"], steps, scale)
    evidence = {
        "candidates": rows,
        "planned_steps": steps,
        "planned_steps_from": next(
            (name for name in ("autotune.steps", "train.max_steps") if recipe[name]),
            f"nothing: epochs count as {UNKNOWN_STEPS} steps, see autotune.steps",
        ),
        "budget_s": recipe["autotune.budget_s"],
        "layers_scale": scale,
        "tie": "2 %",
        "left_out": "optimizer step and TRL's own loss: the same for every candidate",
    }
    (run.evidence / "timings.json").write_text(json.dumps(evidence, indent=2) + "\n")
    if winner is None:
        reasons = "; ".join(f"{m.candidate.name}: {m.reason}" for m in measurements[:4])
        raise StageError(
            f"no candidate could be measured ({reasons})",
            hint="raise autotune.budget_s, or offer other candidates in autotune",
        )
    run.report(note=f"chose {winner.name}")
    decisions = winner.decisions(shape["batch_size"])
    _show(run, decisions, evidence)
    write_plan(run.outputs["plan"], plan_form(decisions, shape, run.platform))


def _show(run: Run, decisions: Mapping[str, Any], evidence: Mapping[str, Any]) -> None:
    """The choice, and what every candidate would have cost."""
    from rules._panels import facts

    names = {"gradient_accumulation": "gradient accumulation", "micro_batch": "micro-batch"}
    facts(run, "Plan", "What was chosen", [(names.get(n, n), v) for n, v in decisions.items()])
    measured = [row for row in evidence["candidates"] if "cost_s" in row and "reason" not in row]
    if measured:
        run.panel(
            "bars",
            "Cost of an optimizer step, by candidate",
            section="Plan",
            unit="ms",
            bars=[
                {"name": row["candidate"], "value": row["cost_s"] * 1000, "marked": row["chosen"]}
                for row in measured
            ],
            note=f"Forward and backward, compiling spread over {evidence['planned_steps']} steps. Of "
            f"candidates within {evidence['tie']} of the fastest the first in the order of preference wins.",
        )
    from rules._probe.choose import ENOUGH

    columns = ["attention/compile/micro-batch", "median ms", "95 % ms", "samples", "compiling s", "why not"]
    rows = [
        [
            row["candidate"],
            *(row[k] * 1000 if k in row else None for k in ("micro_batch_s_median", "micro_batch_s_p95")),
            row.get("samples"),
            row.get("compile_s"),
            row.get("reason") or ("chosen" if row["chosen"] else ""),
        ]
        for row in evidence["candidates"]
    ]
    note = f"Milliseconds of one micro-batch; 95 % took less, where {ENOUGH} or more were timed."
    run.panel("table", "Candidates", section="Plan", columns=columns, rows=rows, note=note)
