"""Trains a new model on its corpus by plain language modelling, so that there is a base worth tuning.

A small loop rather than a trainer: each step's batch depends on the seed and the step's number only,
so a resumed run draws what an uninterrupted one would have drawn.
"""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mxt.rule import Attributes, Config, Label, Labels, Resources, Run
from rules._refusals import on_gpu

if TYPE_CHECKING:
    from mxt.graph.target import Target

VERSION = 1
ESTIMATE = "_estimate.pretrain"
KEYED = (
    "meta.seed",
    "hardware.gpus",
    "hardware.env",
    "model.pretrain.steps",
    "model.pretrain.batch_size",
    "model.pretrain.length",
    "model.pretrain.lr",
    "model.pretrain.weight_decay",
    "model.pretrain.warmup_steps",
)
UNKEYED = ("model.pretrain.checkpoint_steps",)
BETAS = (0.9, 0.95)
MAX_GRAD_NORM = 1.0
FINAL_LR = 0.05  # of the peak, where the cosine ends
# Of a mixture of experts: how much it costs to send tokens to few of the experts. Without it a new router
# settles on some and the others learn nothing. Fine-tuning (rules/train.py) leaves it out, as Qwen3-MoE's own
# configuration does: the experts are divided up by then.
BALANCE = 0.01


class Attrs(Attributes):
    """model: as init_model makes it. corpus: plain-text files."""

    config: Config
    model: Label
    corpus: Labels


def actions(target: Target) -> None:
    """One action, resumable."""
    target.action(
        run=pretrain,
        mnemonic="Pretrain",
        inputs={"model": target.attrs.model, "corpus": list(target.attrs.corpus)},
        outputs={"model": "model/"},
        resources=Resources(cpus=1, memory_mb=2000, gpus=target.config["hardware.gpus"]),
        progress=True,
        environment=target.config["hardware.env"],
        refuse=on_gpu("pre-training", target.config),
    )


def pretrain(run: Run) -> None:
    """Train for the recipe's steps and write the model; metrics.jsonl goes to the evidence."""
    from rules._runtime import load_model, load_tokenizer, prepare

    prepare(run, deterministic=True)
    import torch

    from mxt.store.progress import Checkpoints
    from rules._export import write_model

    want = {k.removeprefix("model.pretrain."): v for k, v in run.config.items()}
    steps, batch_size, length = want["steps"], want["batch_size"], want["length"]
    model = load_model(run.inputs["model"])
    tokens = read_tokens(run, load_tokenizer(run.inputs["model"]))
    if len(tokens) <= length:
        raise run.fail(
            f"the corpus has {len(tokens)} tokens, fewer than one sequence of {length}",
            hint="lower model.pretrain.length, or add text to the corpus",
        )
    torch.manual_seed(want["meta.seed"])
    model.train()
    experts = getattr(model.config, "num_experts", None)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=want["lr"], betas=BETAS, weight_decay=want["weight_decay"]
    )

    checkpoints = Checkpoints(run.progress) if run.progress else None
    newest = checkpoints.newest() if checkpoints else None
    first = 0
    lines: list[str] = []  # of metrics.jsonl, kept with each checkpoint so that a resumed run's are whole
    if newest is not None:
        state = torch.load(newest.path / "state.pt", weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first, lines = state["step"], state["lines"]
        run.report(note=f"resuming at step {first}")

    def save(folder: Path) -> None:
        state = {"step": done, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
        state["lines"] = lines
        torch.save(state, folder / "state.pt")

    offsets = torch.arange(length)
    load: list[float] = []
    started = time.monotonic()
    with (run.evidence / "metrics.jsonl").open("w", encoding="utf-8") as metrics:
        metrics.writelines(lines)
        for step in range(first, steps):
            lr = learning_rate(step, steps, want["warmup_steps"], want["lr"])
            for group in optimizer.param_groups:
                group["lr"] = lr
            generator = torch.Generator().manual_seed(want["meta.seed"] * 1_000_003 + step)
            starts = torch.randint(0, len(tokens) - length, (batch_size, 1), generator=generator)
            rows = tokens[starts + offsets]
            if experts:
                out = model(input_ids=rows, use_cache=False, output_router_logits=True)
                loss = model.loss_function(out.logits, rows, model.config.vocab_size)
                (loss + BALANCE * out.aux_loss).backward()
                load = expert_load(out.router_logits, model.config.num_experts_per_tok)
            else:
                loss = model(input_ids=rows, labels=rows, use_cache=False).loss
                loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_GRAD_NORM)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

            done = step + 1
            value = float(loss.detach())
            if not math.isfinite(value):
                raise run.fail(f"the loss is {value} at step {done}", hint="lower model.pretrain.lr")
            took = time.monotonic() - started
            speed = (done - first) * batch_size * length / took
            left = took / (done - first) * (steps - done)
            shown = {"step": done, "loss": round(value, 4), "tokens_per_s": round(speed)}
            lines.append(json.dumps({**shown, "lr": lr}) + "\n")
            metrics.write(lines[-1])
            run.report(of=steps, eta_s=round(left, 1), **shown)
            if done % run.unkeyed["model.pretrain.checkpoint_steps"] == 0 and done < steps and checkpoints:
                checkpoints.save(f"step-{done}", save)
                checkpoints.prune(keep=2)
    from rules._panels import curves, facts

    curves(run, "Pre-training", [json.loads(line) for line in lines])
    sums = (
        ("steps", steps),
        ("tokens seen", steps * batch_size * length),
        ("tokens in the corpus", len(tokens)),
        *load_facts(load),
    )
    facts(run, "Pre-training", "What pre-training came to", sums)
    write_model(model.eval(), run.inputs["model"], run.outputs["model"])


def read_tokens(run: Run, tokenizer: Any) -> Any:
    """The corpus as one tensor of token ids, an end-of-text token behind each document."""
    import torch

    from rules._corpus import END_OF_TEXT, documents

    end = tokenizer.convert_tokens_to_ids(END_OF_TEXT)
    paths: list[Path] = run.inputs["corpus"]
    ids: list[int] = []
    for encoded in tokenizer(list(documents(paths)), add_special_tokens=False)["input_ids"]:
        ids += encoded
        ids.append(end)
    return torch.tensor(ids, dtype=torch.long)


def expert_load(router_logits: Any, per_token: int) -> list[float]:
    """The part of a batch's tokens that each expert of each layer took, by an even share: 1 is even."""
    import torch

    found = []
    for logits in router_logits:
        count = logits.shape[-1]
        taken = torch.bincount(logits.topk(per_token).indices.reshape(-1), minlength=count)
        found += (taken * count / taken.sum()).tolist()
    return found


def load_facts(load: list[float]) -> tuple[tuple[str, str], ...]:
    """How evenly the last batch was spread over the experts; nothing for a model without any."""
    if not load:
        return ()
    shown = (("busiest", max(load)), ("idlest", min(load)))
    return tuple((f"{name} expert at the end, of an even share", f"{value:.0%}") for name, value in shown)


def learning_rate(step: int, steps: int, warmup: int, peak: float) -> float:
    """Linear warm-up, then a cosine down to FINAL_LR of the peak."""
    rise = min(1.0, (step + 1) / warmup) if warmup else 1.0
    fall = FINAL_LR + (1 - FINAL_LR) * 0.5 * (1 + math.cos(math.pi * step / steps))
    return peak * rise * fall
