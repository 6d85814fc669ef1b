"""Fine-tunes the model on packed sequences with TRL, under the plan: same key, same bytes, even if killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mxt.rule import Attributes, Config, Label, Resources, Run, StageError, Target
from rules._refusals import training

VERSION = 1
ESTIMATE = "_estimate.train"
KEYED = (
    "meta.seed",
    "hardware.gpus",
    "hardware.env",
    "model.kind",
    "model.trust_remote_code",
    "data.pack.max_length",
    "train.method",
    "train.backend",
    "train.parallel",
    "train.lora.r",
    "train.lora.alpha",
    "train.lora.dropout",
    "train.lora.targets",
    "train.lora.base",
    "train.dpo.beta",
    "train.orpo.beta",
    "train.kto.beta",
    "train.kto.desirable_weight",
    "train.kto.undesirable_weight",
    "train.grpo.generations",
    "train.grpo.kl",
    "train.grpo.max_answer",
    "train.grpo.temperature",
    "train.grpo.reward",
    "train.rlhf.reward_repo",
    "train.rlhf.reward_revision",
    "train.rlhf.kl",
    "train.rlhf.max_answer",
    "train.rlhf.temperature",
    "train.lr",
    "train.epochs",
    "train.max_steps",
    "train.batch_size",
    "train.optimizer",
    "train.betas",
    "train.weight_decay",
    "train.scheduler",
    "train.warmup_ratio",
    "train.decay_ratio",
    "train.max_grad_norm",
    "train.determinism",
    "train.dtype",
)
UNKEYED = ("meta.description", "hardware.price_per_hour", "train.logging_steps", "train.checkpoint_steps")


class Attrs(Attributes):
    """model: a model folder. data: packed sequences, all outputs. plan: the probe's or a pinned one."""

    config: Config
    model: Label
    data: Label
    plan: Label


def actions(target: Target) -> None:
    lora = target.config["train.lora.r"] is not None
    target.action(
        run=train,
        mnemonic="Train",
        inputs={
            "model": target.attrs.model,
            "data": target.outputs(target.attrs.data),
            # under one name, so that pinning the probe's plan is no change
            "plan": target.source(target.attrs.plan)._replace(path="plan.json"),
        },
        outputs={"adapter": "adapter/"} if lora else {"model": "model/"},
        resources=Resources(cpus=1, memory_mb=2048, gpus=target.config["hardware.gpus"]),
        progress=True,
        accelerants=True,
        environment=target.config["hardware.env"],
        refuse=training(target.config),
    )


def train(run: Run) -> None:
    """Plan, data, model, steps, result; evidence: metrics.jsonl, settings.json, summary.json."""
    from rules._plan import read_model_config, read_plan, shape_of

    source = run.inputs["model"].absolute()
    plan = read_plan(run.inputs["plan"], shape_of(read_model_config(source), run.config), run.platform)

    from rules._runtime import load_model, load_tokenizer, prepare

    prepare(run, deterministic=run.config["train.determinism"] == "strict")
    from mxt.store.progress import Checkpoints
    from rules._compile_watch import CompileWatch, compile_layers
    from rules._packed import PackedCollator, padded_length, read_packed
    from rules._training import Journal, lora_config, make_trainer, trainer_settings

    longest = run.config["data.pack.max_length"]
    rows = read_packed(run.inputs["data"], longest)
    run.report(note="loading the model")
    code = run.config.get("model.trust_remote_code")
    model = load_model(source, dtype=run.config["train.dtype"], attention=plan["attention"], code=code)
    if model.config._attn_implementation != plan["attention"]:
        raise StageError(
            f"plan asks for attention '{plan['attention']}', "
            f"the model runs '{model.config._attn_implementation}'"
        )
    tokenizer = load_tokenizer(source, code)
    checkpoints = Checkpoints(run.progress.absolute()) if run.progress else None
    settings = trainer_settings(run, plan, len(rows))
    compiling = plan["compile"] == "inductor"
    journal = Journal(run, run.unkeyed["train.logging_steps"])
    watch = CompileWatch(compiling)
    trainer = make_trainer(
        model=model,
        tokenizer=tokenizer,
        rows=rows,
        collator=PackedCollator(
            plan["micro_batch"], padded_length(longest) if compiling else None, tokenizer.pad_token_id or 0
        ),
        settings=settings,
        peft=lora_config(run.config, model),
        journal=journal,
        watch=watch,
        checkpoints=checkpoints,
    )
    if compiling:
        compile_layers(trainer.model)
    resume = checkpoints.newest() if checkpoints else None
    if resume is not None:
        journal.restore(resume.path)
        run.report(note=f"resuming from {resume.name}")
    journal.start()
    trainer.train(resume_from_checkpoint=str(resume.path) if resume else None)
    _write_result(run, trainer.model, source)
    _write_evidence(run, plan, settings, journal, watch)


def _write_result(run: Run, model: Any, source: Path) -> None:
    """The adapter, or the whole model with the files of the source that training leaves alone."""
    from rules._export import write_adapter, write_model

    if "adapter" in run.outputs:
        write_adapter(model, run.outputs["adapter"])
    else:
        write_model(model, source, run.outputs["model"])


def _write_evidence(run: Run, plan: Any, settings: dict[str, Any], journal: Any, watch: Any) -> None:
    """What describes this run and no other: the cost it had, what was set, what was compiled."""
    import json

    price = run.unkeyed["hardware.price_per_hour"]
    summary = {
        "description": run.unkeyed["meta.description"],
        "steps": journal.lines[-1]["step"] if journal.lines else 0,
        "loss": journal.lines[-1]["loss"] if journal.lines else None,
        "tokens": journal.tokens,
        "seconds": round(journal.seconds, 3),
        "tokens_per_s": round(journal.tokens / journal.seconds, 1) if journal.seconds else None,
        "cost_usd": None if price is None else round(price * journal.seconds / 3600, 6),
        "resumed_from": journal.resumed_from,
        "graphs_compiled": watch.warm or 0,
        "graphs_compiled_after_warm_up": watch.after_warm_up,
    }
    kept = {k: v for k, v in settings.items() if k != "output_dir"}
    (run.evidence / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    (run.evidence / "settings.json").write_text(json.dumps({"plan": plan, "trainer": kept}, indent=2) + "\n")
    from rules._panels import curves, facts

    cost = summary["cost_usd"]
    shown = (
        ("optimizer steps", summary["steps"]),
        ("loss at the end", summary["loss"]),
        ("tokens trained on", summary["tokens"]),
        ("seconds in steps", summary["seconds"]),
        ("tokens a second", summary["tokens_per_s"]),
        ("cost", None if cost is None else f"{cost:.4f} USD"),
        ("resumed from step", summary["resumed_from"]),
        ("graphs compiled", summary["graphs_compiled"] or None),
        ("compiled after warm-up", summary["graphs_compiled_after_warm_up"] or None),
    )
    curves(run, "Training", journal.lines)
    facts(run, "Training", "What training came to", shown)
