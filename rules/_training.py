"""TRL's SFT trainer, told what the plan decided, watched at each step and resumable from any checkpoint."""

from __future__ import annotations

import json
import math
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mxt.rule import Run, StageError

if TYPE_CHECKING:
    import torch
    from trl import SFTTrainer

STATE = "mxt_state.json"
DECAY_RATIO = 0.1  # of all steps, where scheduler wsd is not told any


class Journal:
    """The run so far: metrics, tokens, seconds; saved with each checkpoint, so that resumed ones are whole.

    lines: what metrics.jsonl holds, one per `every` steps and the last step. tokens: real ones,
    without padding. seconds: spent in steps, over all processes that worked on this run.
    """

    def __init__(self, run: Run, every: int) -> None:
        self.run = run
        self.every = every
        self.lines: list[dict[str, Any]] = []
        self.tokens = 0
        self.seconds = 0.0
        self.resumed_from: int | None = None
        self._began = time.monotonic()
        self._tokens_before = 0
        self._warm: tuple[int, float] | None = None  # step and second after the first step here

    def start(self) -> None:
        self._began = time.monotonic() - self.seconds
        self._tokens_before = self.tokens

    def step(self, step: int, of: int, logs: Mapping[str, float], last: bool) -> None:
        """Report a finished step; keep it if it is one to keep."""
        before = self.seconds
        self.seconds = time.monotonic() - self._began
        took = max(self.seconds - before, 1e-9)
        rate = (self.tokens - self._tokens_before) / took
        self._tokens_before = self.tokens
        eta: dict[str, float] = {}
        if self._warm is None:  # the first step may have compiled: it foretells nothing
            self._warm = step, self.seconds
        else:
            eta["eta_s"] = round((self.seconds - self._warm[1]) / (step - self._warm[0]) * (of - step), 1)
        self.run.report(step=step, of=of, loss=round(logs["loss"], 4), tokens_per_s=round(rate), **eta)
        if last or step % self.every == 0:
            self.lines.append(
                {
                    "step": step,
                    "loss": logs["loss"],
                    "lr": logs["learning_rate"],
                    "grad_norm": logs["grad_norm"],
                    "tokens": self.tokens,
                    "tokens_per_s": round(rate, 1),
                    "seconds": round(self.seconds, 3),
                }
            )
            self.write()

    def write(self) -> None:
        text = "".join(json.dumps(line) + "\n" for line in self.lines)
        (self.run.evidence / "metrics.jsonl").write_text(text)

    def save(self, folder: Path, step: int) -> None:
        state = {"step": step, "lines": self.lines, "tokens": self.tokens, "seconds": self.seconds}
        (folder / STATE).write_text(json.dumps(state))

    def restore(self, folder: Path) -> None:
        state = json.loads((folder / STATE).read_text())
        self.lines, self.tokens, self.seconds = state["lines"], state["tokens"], state["seconds"]
        self.resumed_from = state["step"]
        self.write()


def trainer_settings(run: Run, plan: Mapping[str, Any], rows: int) -> dict[str, Any]:
    """SFTConfig's arguments. rows: packed sequences in the data."""
    recipe = run.config
    updates = math.ceil(rows / recipe["train.batch_size"])
    steps = recipe["train.max_steps"] or math.ceil(recipe["train.epochs"] * updates)
    return {
        "output_dir": tempfile.mkdtemp(prefix="trainer-", dir=os.environ.get("TMPDIR")),
        "max_steps": recipe["train.max_steps"] or -1,
        "num_train_epochs": recipe["train.epochs"] or 1,
        "per_device_train_batch_size": plan["micro_batch"],
        "gradient_accumulation_steps": plan["gradient_accumulation"],
        "learning_rate": recipe["train.lr"],
        **schedule(recipe, steps),
        "optim": {"adamw": "adamw_torch"}[recipe["train.optimizer"]],
        "adam_beta1": recipe["train.betas"][0],
        "adam_beta2": recipe["train.betas"][1],
        "weight_decay": recipe["train.weight_decay"],
        "max_grad_norm": recipe["train.max_grad_norm"],
        "seed": recipe["meta.seed"],
        "data_seed": recipe["meta.seed"],
        "max_length": recipe["data.pack.max_length"],
        "save_strategy": "steps" if run.progress else "no",
        "save_steps": run.unkeyed["train.checkpoint_steps"],
        "logging_strategy": "steps",
        "logging_steps": 1,
        "logging_nan_inf_filter": False,
        "report_to": [],
        "disable_tqdm": True,
        "use_cpu": True,
        "bf16": False,
        "fp16": False,
        "gradient_checkpointing": False,
        "dataloader_num_workers": 0,
        "dataloader_pin_memory": False,
        "remove_unused_columns": False,
        "packing": False,
        "padding_free": False,
        "dataset_kwargs": {"skip_prepare_dataset": True},
    }


def schedule(recipe: Mapping[str, Any], steps: int) -> dict[str, Any]:
    """What SFTConfig is told of the learning rate. steps: optimizer steps in all.

    wsd: linear warm-up, the peak, and for decay_ratio of the steps a straight line that would be at zero
    one step after the last. Where no step is left after warm-up nothing decays: it would divide by zero.
    """
    name, warmup = recipe["train.scheduler"], math.ceil(recipe["train.warmup_ratio"] * steps)
    if name == "constant" or warmup >= steps:
        return {"lr_scheduler_type": "constant_with_warmup", "warmup_steps": warmup}
    if name != "wsd":
        return {"lr_scheduler_type": name, "warmup_steps": warmup}
    ratio = DECAY_RATIO if recipe["train.decay_ratio"] is None else recipe["train.decay_ratio"]
    # rounded up as warm-up is, so together they may come to a step too many
    decay = min(math.ceil(ratio * steps), steps - warmup)
    how = {"num_decay_steps": decay, "decay_type": "linear", "min_lr_ratio": 0.0}
    return {
        "lr_scheduler_type": "warmup_stable_decay",
        "lr_scheduler_kwargs": how,
        "warmup_steps": warmup,
    }


def lora_config(recipe: Mapping[str, Any], model: Any) -> Any:
    """peft's LoraConfig, or None for full training. Raises StageError for a target the model lacks."""
    if recipe["train.lora.r"] is None:
        return None
    import torch
    from peft import LoraConfig

    from mxt.errors import did_you_mean

    targets = list(recipe["train.lora.targets"])
    linear = {n.rpartition(".")[2] for n, m in model.named_modules() if isinstance(m, torch.nn.Linear)}
    linear.discard("lm_head")
    fused = fused_experts(model)
    missing = [t for t in targets if t not in linear | fused]
    if missing:
        experts = f"; its experts, all of a layer in one: {', '.join(sorted(fused))}" if fused else ""
        raise StageError(
            f"model has no linear layer '{missing[0]}' (train.lora.targets)"
            f"{did_you_mean(missing[0], linear | fused)}",
            hint=f"it has {', '.join(sorted(linear))}{experts}",
        )
    _rank_fits(recipe["train.lora.r"], targets, model)
    experts_too = sorted(fused.intersection(targets))
    if experts_too and recipe["train.lora.dropout"]:
        raise StageError(
            f"train.lora.dropout cannot be applied to experts ('{experts_too[0]}' in train.lora.targets)",
            hint="leave train.lora.dropout out, or name linear layers only",
        )
    return LoraConfig(
        r=recipe["train.lora.r"],
        lora_alpha=recipe["train.lora.alpha"],
        lora_dropout=recipe["train.lora.dropout"],
        target_modules=[t for t in targets if t in linear],
        target_parameters=[f"experts.{name}" for name in experts_too] or None,
        task_type="CAUSAL_LM",
    )


def _rank_fits(rank: int, targets: Sequence[str], model: Any) -> None:
    """Raises StageError where an adapter would be larger than its layer; of known ones a recipe says so."""
    import torch

    for name, layer in model.named_modules():
        target = name.rpartition(".")[2]
        if not isinstance(layer, torch.nn.Linear) or target not in targets:
            continue
        width = min(layer.in_features, layer.out_features)
        if rank > width:
            raise StageError(
                f"train.lora.r {rank} is more than {width}, as wide as {target} is in the model",
                hint=f"such an adapter is larger than its layer: take {width} or less; usual are 8 to 64",
            )


def fused_experts(model: Any) -> set[str]:
    """What a mixture of experts holds in place of linear layers: the weights of all experts of a layer in one
    parameter of three dimensions; the last parts of their names, such as gate_up_proj and down_proj.

    An adapter on one of them is an adapter on each expert.
    """
    names = (n.split(".") for n, p in model.named_parameters() if p.ndim == 3)
    return {parts[-1] for parts in names if "experts" in parts[:-1]}


def make_trainer(
    *,
    model: Any,
    tokenizer: Any,
    rows: Any,
    collator: Any,
    settings: Mapping[str, Any],
    peft: Any,
    journal: Journal,
    watch: Any,
    checkpoints: Any,
) -> SFTTrainer:
    """The trainer, ready to train. rows: a pyarrow table of packed sequences."""
    from datasets import Dataset
    from transformers import PrinterCallback, ProgressCallback, Trainer, TrainerCallback
    from trl import SFTConfig, SFTTrainer

    class Watcher(TrainerCallback):  # type: ignore[misc]
        """Stops at a loss that is no number, checks the compiler, reports."""

        def on_step_end(self, _: Any, state: Any, control: Any, **__: Any) -> None:
            if state.global_step >= state.max_steps:
                control.should_save = False  # resumed from the very end, Trainer would take a step more

        def on_log(self, _: Any, state: Any, __: Any, logs: Any = None, **___: Any) -> None:
            if not logs or "loss" not in logs:
                return  # the summary at the end
            step = state.global_step
            if not (math.isfinite(logs["loss"]) and math.isfinite(logs["grad_norm"])):
                raise StageError(
                    f"loss is {logs['loss']} and gradient norm {logs['grad_norm']} at step {step}",
                    hint="lower train.lr, or raise train.warmup_ratio; checkpoints before this step are kept",
                )
            watch.step_done(step)
            journal.step(step, state.max_steps, logs, last=step >= state.max_steps)

    class PackedTrainer(SFTTrainer):  # type: ignore[misc]
        """Counts real tokens, and saves checkpoints whole or not at all."""

        def training_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
            journal.tokens += int(inputs.pop("real_tokens"))
            loss: torch.Tensor = super().training_step(model, inputs, *args, **kwargs)
            return loss

        def _save_checkpoint(self, model: Any, trial: Any) -> None:
            step, place = self.state.global_step, self.args.output_dir

            def write(folder: Path) -> None:
                self.args.output_dir = str(folder.parent)  # to which Trainer adds checkpoint-STEP
                Trainer._save_checkpoint(self, model, trial)  # TRL's own adds a model card to each
                journal.save(folder, step)

            try:
                checkpoints.save(f"checkpoint-{step}", write)
            finally:
                self.args.output_dir = place
            checkpoints.prune(keep=2)

    trainer = PackedTrainer(
        model=model,
        args=SFTConfig(**settings),
        data_collator=collator,
        train_dataset=Dataset(rows, fingerprint="packed"),  # made up: hashing it would pickle the table
        processing_class=tokenizer,
        peft_config=peft,
        callbacks=[Watcher()],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.remove_callback(ProgressCallback)
    return trainer
