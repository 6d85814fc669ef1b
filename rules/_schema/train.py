"""train: the fine-tuning itself; one section of settings for each method that has any."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from rules._revisions import UNPINNED
from rules._schema.base import Fraction, Positive, Repo, Revision, Section, Texts

Method = Literal["sft", "cpt", "tool_use", "vision_sft", "dpo", "orpo", "kto", "grpo", "gspo", "rlhf"]
Backend = Literal["trl", "axolotl", "unsloth", "torchtune", "primus"]

# what each method reads: the forms of data.format that fit it
FORMATS: dict[str, tuple[str, ...]] = {
    "sft": ("auto", "messages", "prompt_completion", "alpaca", "sharegpt", "text"),
    "cpt": ("text",),
    "tool_use": ("tools",),
    "vision_sft": ("images",),
    "dpo": ("preference",),
    "orpo": ("preference",),
    "kto": ("rated",),
    "grpo": ("prompt",),
    "gspo": ("prompt",),
    "rlhf": ("prompt",),
}
# methods with a section of their own, by its name
SECTIONS = {"dpo": "dpo", "orpo": "orpo", "kto": "kto", "grpo": "grpo", "gspo": "grpo", "rlhf": "rlhf"}


class Lora(Section):
    """Low-rank adapters; without this section all weights are trained."""

    r: Positive = Field(16, description="rank of the adapters")
    alpha: Positive = Field(32, description="scale: the adapter is multiplied by alpha / r")
    dropout: float = Field(0.0, ge=0.0, lt=1.0, description="probability of dropping an adapter's input")
    targets: Texts = Field(
        ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"),
        min_length=1,
        description="linear layers that get an adapter, by the last part of their name; gate_up_proj and "
        "down_proj of a mixture of experts put one on each expert",
    )
    base: Literal["full", "nf4"] = Field(
        "full", description="the frozen weights: as they are, or in 4 bits (QLoRA)"
    )


class Dpo(Section):
    """Direct preference optimization."""

    beta: float = Field(0.1, gt=0, description="strength of the pull towards the reference model")


class Orpo(Section):
    """Odds-ratio preference optimization."""

    beta: float = Field(0.1, gt=0, description="weight of the odds-ratio term")


class Kto(Section):
    """Kahneman-Tversky optimization."""

    beta: float = Field(0.1, gt=0, description="strength of the pull towards the reference model")
    desirable_weight: float = Field(1.0, gt=0, description="weight of rows that are rated good")
    undesirable_weight: float = Field(1.0, gt=0, description="weight of rows that are rated bad")


class Grpo(Section):
    """Group-relative policy optimization; with method gspo its ratios are taken over whole answers."""

    generations: int = Field(4, ge=2, description="answers to each prompt")
    kl: float = Field(0.04, ge=0, description="weight of the divergence from the reference model")
    max_answer: Positive = Field(1024, description="tokens an answer, at most")
    temperature: float = Field(1.0, gt=0, description="of sampling")
    reward: Literal["number", "exact", "code"] = Field(
        "number",
        description="what is checked: the last number of an answer, its text, or that its code passes tests",
    )


class Rlhf(Section):
    """A policy trained against a reward model."""

    reward_repo: Repo = Field(description="the reward model on the Hub")
    reward_revision: Revision = Field(UNPINNED, description="its commit")
    kl: float = Field(0.05, ge=0, description="weight of the divergence from the reference model")
    max_answer: Positive = Field(1024, description="tokens an answer, at most")
    temperature: float = Field(1.0, gt=0, description="of sampling")


class Train(Section):
    """The fine-tuning itself."""

    method: Method = Field(
        "sft",
        description="'sft': supervised fine-tuning; 'cpt': continued pre-training on plain text; 'tool_use', "
        "'vision_sft': sft on rows that call functions or show pictures; 'dpo', 'orpo', 'kto': from "
        "preferences; 'grpo', 'gspo': from rewards that can be checked; 'rlhf': from a reward model",
    )
    backend: Backend = Field("trl", description="the library that trains")
    parallel: Literal["none", "ddp", "fsdp"] = Field(
        "none",
        description="several GPUs: 'ddp' copies the model to each, 'fsdp' spreads it over them",
    )
    lora: Lora | None = Field(None, description="train adapters; absent: all weights")
    dpo: Dpo | None = Field(None, description="settings of method dpo")
    orpo: Orpo | None = Field(None, description="settings of method orpo")
    kto: Kto | None = Field(None, description="settings of method kto")
    grpo: Grpo | None = Field(None, description="settings of methods grpo and gspo")
    rlhf: Rlhf | None = Field(None, description="settings of method rlhf")
    lr: float = Field(gt=0, le=10, description="peak learning rate")
    epochs: float | None = Field(None, gt=0, description="passes over the data; or max_steps")
    max_steps: Positive | None = Field(None, description="optimizer steps; or epochs")
    batch_size: Positive = Field(16, description="sequences per optimizer step, over all devices")
    optimizer: Literal["adamw", "muon"] = Field(
        "adamw", description="the optimizer; 'muon' takes AdamW for all that is no matrix"
    )
    betas: Annotated[tuple[Fraction, Fraction], Field(strict=False)] = Field(
        (0.9, 0.95), description="AdamW's betas"
    )
    weight_decay: float = Field(0.0, ge=0, description="decoupled weight decay")
    scheduler: Literal["cosine", "linear", "constant", "wsd"] = Field(
        "cosine", description="learning rate after warm-up; 'wsd': stable, then a linear decay"
    )
    warmup_ratio: Fraction = Field(0.03, description="part of the steps spent on linear warm-up")
    decay_ratio: Fraction | None = Field(
        None, description="scheduler wsd: part of the steps spent on the decay; absent: 0.1"
    )
    max_grad_norm: float = Field(1.0, gt=0, description="gradients are clipped to this norm")
    determinism: Literal["strict", "free"] = Field("strict", description="'strict': the same bytes each time")
    dtype: Literal["float32", "bfloat16"] = Field("float32", description="type of weights and computation")
    logging_steps: Positive = Field(10, description="steps between lines of metrics.jsonl; in no key")
    checkpoint_steps: Positive = Field(100, description="steps between checkpoints for resuming; in no key")

    @model_validator(mode="after")
    def _one_length(self) -> Train:
        if (self.epochs is None) == (self.max_steps is None):
            if self.epochs is None:
                raise ValueError("epochs (or 'max_steps') is missing: how long is it trained?")
            raise ValueError("epochs and 'max_steps' are both given\nleave one of them out")
        if self.decay_ratio is not None and self.scheduler != "wsd":
            raise ValueError(
                f"decay_ratio has no effect with scheduler '{self.scheduler}'\n"
                "leave it out: it belongs to 'wsd'"
            )
        if self.warmup_ratio + (self.decay_ratio or 0) > 1:
            raise ValueError(
                f"warmup_ratio {self.warmup_ratio:g} and decay_ratio {self.decay_ratio:g} "
                "are more than all steps"
            )
        return self

    @model_validator(mode="after")
    def _own_section(self) -> Train:
        own = SECTIONS.get(self.method)
        for name in dict.fromkeys(SECTIONS.values()):
            if name != own and getattr(self, name) is not None:
                raise ValueError(f"{name} has no effect with method '{self.method}'\nleave the section out")
        if own is not None and getattr(self, own) is None:
            raise ValueError(
                f"method '{self.method}' needs the section 'train.{own}'\n'{own}: {{}}' takes its defaults"
            )
        return self
