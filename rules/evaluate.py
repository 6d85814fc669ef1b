"""Judges a model with lm-eval, the base alone or with an adapter merged in; results.json scores each row."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mxt.rule import Attributes, Config, Label, Labels, Refusal, Resources, Run, Target, not_yet
from rules._gated import needs
from rules._hub import PASSTHROUGH
from rules._refusals import on_gpu, pictures, unpinned

VERSION = 1
KEYED = (
    "meta.seed",
    "hardware.gpus",
    "hardware.env",
    "model.kind",
    "model.trust_remote_code",
    "eval.tasks",
    "eval.revisions",
    "eval.num_fewshot",
    "eval.limit",
    "eval.batch_size",
    "eval.chat_template",
    "eval.code",
)


class Attrs(Attributes):
    """model: a model folder. adapter: merged into it. tasks: task files. files: the rows that they name."""

    config: Config
    model: Label
    adapter: Label | None = None
    tasks: Labels = ()
    files: Labels = ()


def is_file(task: str) -> bool:
    """Whether an entry of eval.tasks is a task file (else the name of one of lm-eval's tasks)."""
    return task.endswith((".yaml", ".yml"))


def actions(target: Target) -> None:
    inputs = {
        "model": target.attrs.model,
        "tasks": list(target.attrs.tasks),
        "files": list(target.attrs.files),
    }
    if target.attrs.adapter is not None:
        inputs["adapter"] = target.attrs.adapter
    hub = not all(is_file(t) for t in target.config["eval.tasks"])
    target.action(
        run=evaluate,
        mnemonic="Evaluate",
        inputs=inputs,
        outputs={"results": "results.json"},
        resources=Resources(cpus=1, memory_mb=2048, gpus=target.config["hardware.gpus"]),
        environment=target.config["hardware.env"],
        refuse=_refusal(target.config, target.label),
        network=hub,
        passthrough=PASSTHROUGH if hub else (),
        needs=needs(*(target.config["eval.revisions"] or ())),
    )


def _refusal(config: Mapping[str, Any], label: str) -> Refusal | None:
    """Code that a model wrote, a GPU, or a dataset whose commit is not known."""
    if config["eval.code"] != "refuse":
        return not_yet("tasks that run what the model writes", hint="leave eval.code and such tasks out")
    revisions = (config["eval.revisions"] or {}).items()
    loose = (unpinned(f"eval.revisions[{name}]", revision, label) for name, revision in revisions)
    return pictures("judging", config) or on_gpu("evaluation", config) or next((r for r in loose if r), None)


def evaluate(run: Run) -> None:
    """results.json: {"version", "settings", "groups", "tasks": {name: {"metrics", "samples", ...}}}."""
    from rules._harness import (
        counting_model,
        evaluate_tasks,
        require_hub,
        require_pins,
        scratch,
        task_manager,
    )
    from rules._runtime import load_tokenizer, load_tuned, prepare
    from rules._task_files import place_tasks

    folder = scratch()
    local = place_tasks(run.inputs["tasks"], run.inputs["files"], folder)
    names = [Path(t).stem if is_file(t) else t for t in run.config["eval.tasks"]]
    prepare(run, offline=set(names) <= set(local), deterministic=True)
    run.report(note="loading lm-eval")
    manager = task_manager(folder, names, local)
    hub = [n for n in names if n not in local]
    if hub:
        require_pins(manager, hub, run.config["eval.revisions"] or {})
        require_hub(hub)
    model_folder = run.inputs["model"].absolute()
    adapter = run.inputs.get("adapter")
    run.report(note="loading the model")
    code = run.config.get("model.trust_remote_code")
    model = load_tuned(model_folder, adapter.absolute() if adapter else None, code=code)
    tokenizer = load_tokenizer(model_folder, code)
    harness = counting_model(run, model, tokenizer, run.config["eval.batch_size"])
    run.report(note="writing the questions")
    results = evaluate_tasks(manager, harness, names, local, run.config)
    _write(run.outputs["results"], results)
    from rules._panels import evaluation

    evaluation(run, results)


def _write(path: Path, results: object) -> None:
    import json

    path.write_text(json.dumps(results, sort_keys=True, separators=(",", ":"), ensure_ascii=False) + "\n")
