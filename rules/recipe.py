"""The recipe: what one YAML file may say, each field with its unit, checked before anything runs.

Every field is read by a stage (its rule names it in KEYED or UNKEYED) or by the macro finetune.mxt,
which turns the sections present into stages. A field that nothing reads is a defect.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

Positive = Annotated[int, Field(gt=0)]
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
# YAML has lists only; everything else stays strict, so that "8" is no number and 1 is no boolean
Texts = Annotated[tuple[str, ...], Field(strict=False)]


def _commit(value: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{40}", value):
        raise ValueError(
            f"'{value}' is no commit: give its 40 hexadecimal characters, as branches and tags move"
        )
    return value


Revision = Annotated[str, AfterValidator(_commit)]
Repo = Annotated[str, Field(pattern=r"^[\w.-]+/[\w.-]+$")]


class Section(BaseModel):
    """A part of a recipe: frozen, unknown fields refused, no type guessed."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


# ------------------------------------------------------------------------------------ whole run


class Meta(Section):
    """What this run is called and the one seed that all its stages use."""

    description: str = Field("", description="one line for people; kept with the run's evidence, in no key")
    seed: int = Field(2048, ge=0, lt=2**31, description="seed of every random choice of every stage")


class Hardware(Section):
    """The declared device."""

    platform: str = Field(
        "cpu", pattern=r"^[a-z][a-z0-9_]*$", description="a platform of the root package: 'cpu' is //:cpu"
    )
    price_per_hour: float | None = Field(
        None, ge=0, description="US dollars an hour; for the cost in training's evidence, in no key"
    )


class Autotune(Section):
    """What the probe may choose from; it measures each and writes its choice into the plan."""

    policy: str = Field("aot_only", description="'aot_only': choices are made before the run, never in it")
    budget_s: float = Field(60.0, gt=0, description="seconds the probe may measure")
    attention: Annotated[tuple[Literal["sdpa", "eager"], ...], Field(strict=False)] = Field(
        ("sdpa", "eager"),
        min_length=1,
        description="attention implementations to try, in order of preference",
    )
    compile: Annotated[tuple[Literal["none", "inductor"], ...], Field(strict=False)] = Field(
        ("none", "inductor"), min_length=1, description="compilers to try, in order of preference"
    )
    micro_batch: Annotated[tuple[Positive, ...], Field(strict=False)] = Field(
        (1, 2, 4),
        min_length=1,
        description="sequences per forward pass to try; each must divide train.batch_size",
    )
    steps: Positive | None = Field(
        None,
        description="optimizer steps over which compiling must pay; absent: max_steps, or 1000 for epochs",
    )

    @field_validator("policy")
    @classmethod
    def _aot_only(cls, value: str) -> str:
        if value != "aot_only":
            raise ValueError(
                f"policy is '{value}', must be 'aot_only': tuned at run time, results depend on timing"
            )
        return value


# ---------------------------------------------------------------------------------------- model


class Init(Section):
    """A new Qwen3 with random weights and a tokenizer trained on the corpus."""

    corpus: Texts = Field(min_length=1, description="globs of plain-text files in the package")
    vocab_size: int = Field(
        1024, ge=280, le=2**20, description="tokens in the vocabulary, special tokens included"
    )
    hidden_size: Positive = Field(128, description="width of the residual stream")
    intermediate_size: Positive = Field(256, description="width of the feed-forward part")
    num_hidden_layers: Positive = Field(2, description="transformer layers")
    num_attention_heads: Positive = Field(4, description="query heads")
    num_key_value_heads: Positive = Field(
        2, description="key and value heads; must divide num_attention_heads"
    )
    head_dim: Positive = Field(32, description="width of one head; even")
    max_position_embeddings: Positive = Field(512, description="longest sequence, in tokens")
    rope_theta: float = Field(
        10_000.0, gt=0, description="base of the rotary embeddings; small for short sequences"
    )
    tie_word_embeddings: bool = Field(True, description="input and output embeddings share their weights")

    @model_validator(mode="after")
    def _heads(self) -> Init:
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError(
                f"num_attention_heads {self.num_attention_heads} is not a multiple of "
                f"num_key_value_heads {self.num_key_value_heads}"
            )
        if self.head_dim % 2:
            raise ValueError(f"head_dim {self.head_dim} must be even: rotary embeddings turn pairs")
        return self


class HubModel(Section):
    """A model of the Hugging Face Hub."""

    repo: Repo = Field(description="'owner/name'")
    revision: Revision = Field(description="the commit: 40 hex characters, so that it can't change")


class Pretrain(Section):
    """Language modelling on the corpus, so that a new model is a base worth tuning."""

    steps: Positive = Field(description="optimizer steps")
    batch_size: Positive = Field(16, description="sequences a step")
    length: Positive = Field(128, description="tokens a sequence")
    lr: float = Field(3e-3, gt=0, description="peak learning rate (AdamW)")
    weight_decay: float = Field(0.0, ge=0, description="AdamW's decoupled weight decay")
    warmup_steps: int = Field(20, ge=0, description="steps of linear warm-up before the cosine decay")
    checkpoint_steps: Positive = Field(100, description="steps between checkpoints for resuming; in no key")


class Model(Section):
    """Where the model comes from: exactly one of init, hub and path."""

    init: Init | None = Field(None, description="make a new one")
    hub: HubModel | None = Field(None, description="download one")
    path: str | None = Field(None, description="a folder in the package, as save_pretrained writes it")
    pretrain: Pretrain | None = Field(None, description="train a new one on its corpus first")

    @model_validator(mode="after")
    def _one_source(self) -> Model:
        given = [n for n in ("init", "hub", "path") if getattr(self, n) is not None]
        if len(given) != 1:
            said = " and ".join(given) if given else "none of them"
            raise ValueError(f"give exactly one of 'init', 'hub' and 'path' (given: {said})")
        if self.pretrain is not None and self.init is None:
            raise ValueError("'pretrain' trains a new model on its corpus: it needs 'init'")
        if self.pretrain and self.init and self.pretrain.length > self.init.max_position_embeddings:
            raise ValueError(
                f"pretrain.length {self.pretrain.length} is longer than "
                f"init.max_position_embeddings {self.init.max_position_embeddings}"
            )
        return self


# ----------------------------------------------------------------------------------------- data


class HubData(Section):
    """Files of a dataset on the Hugging Face Hub."""

    repo: Repo = Field(description="'owner/name'")
    revision: Revision = Field(description="the commit: 40 hex characters, so that it can't change")
    files: Texts = Field(
        min_length=1, description="paths in the repository, JSONL or Parquet; each is one shard"
    )


class MinHash(Section):
    """Near-duplicate search by MinHash over words."""

    threshold: float = Field(
        0.85, gt=0, le=1, description="estimated Jaccard similarity from which two rows are the same"
    )
    num_perm: int = Field(128, ge=16, le=1024, description="hash functions a signature")
    ngram: int = Field(5, ge=1, le=50, description="words a shingle")


class Dedupe(Section):
    """Which rows count as repeated; the first occurrence stays."""

    exact: bool = Field(True, description="drop rows equal to an earlier one")
    minhash: MinHash | None = Field(None, description="drop rows nearly equal to an earlier one")


class Pack(Section):
    """How rows become training sequences."""

    max_length: Positive = Field(description="tokens a packed sequence, at most")
    strategy: Literal["bfd", "none"] = Field(
        "bfd",
        description="'bfd': best-fit decreasing, documents kept whole and apart; 'none': one row a sequence",
    )
    overlong: Literal["stop", "truncate", "drop"] = Field(
        "stop", description="what to do with a row of more than max_length tokens"
    )


class Data(Section):
    """The training rows: exactly one of files and hub."""

    files: Texts | None = Field(
        None, min_length=1, description="globs of JSONL or Parquet files in the package"
    )
    hub: HubData | None = Field(None, description="download them")
    format: Literal["auto", "messages", "prompt_completion", "alpaca", "sharegpt", "text"] = Field(
        "auto", description="the rows' form; 'auto' tells it from the first row of each shard"
    )
    rows_per_shard: Positive | None = Field(
        None, description="lines of a JSONL file per shard; without it each file is one shard"
    )
    on_bad_rows: Literal["stop", "skip"] = Field(
        "stop", description="'stop' at the first bad row; 'skip' it, count it and keep it in the evidence"
    )
    max_row_bytes: Positive = Field(1_000_000, description="bytes of one row, at most; a longer one is bad")
    chat_template: str | None = Field(
        None, description="a Jinja file in the package that replaces the model's template"
    )
    dedupe: Dedupe | None = Field(None, description="drop repeated rows")
    pack: Pack = Field(description="tokenize and pack")

    @model_validator(mode="after")
    def _one_source(self) -> Data:
        if (self.files is None) == (self.hub is None):
            raise ValueError("give exactly one of 'files' and 'hub'")
        if self.hub is not None and self.rows_per_shard is not None:
            raise ValueError(
                "'rows_per_shard' splits files of the workspace; with 'hub' each file is one shard"
            )
        if self.format == "text" and self.chat_template is not None:
            raise ValueError(
                "'chat_template' has no effect on plain text: leave it out, or choose another format"
            )
        return self


# ------------------------------------------------------------------- training, evaluation, size


class Lora(Section):
    """Low-rank adapters; without this section all weights are trained."""

    r: Positive = Field(16, description="rank of the adapters")
    alpha: Positive = Field(32, description="scale: the adapter is multiplied by alpha / r")
    dropout: Fraction = Field(0.0, description="probability of dropping an adapter's input")
    targets: Texts = Field(
        ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"),
        min_length=1,
        description="linear layers that get an adapter, by the last part of their name",
    )


class Train(Section):
    """The fine-tuning itself."""

    method: Literal["sft"] = Field("sft", description="supervised fine-tuning")
    lora: Lora | None = Field(None, description="train adapters; absent: all weights")
    lr: float = Field(gt=0, le=10, description="peak learning rate")
    epochs: float | None = Field(None, gt=0, description="passes over the data; or max_steps")
    max_steps: Positive | None = Field(None, description="optimizer steps; or epochs")
    batch_size: Positive = Field(16, description="packed sequences per optimizer step, over all devices")
    optimizer: Literal["adamw"] = Field("adamw", description="the optimizer")
    betas: Annotated[tuple[Fraction, Fraction], Field(strict=False)] = Field(
        (0.9, 0.95), description="AdamW's betas"
    )
    weight_decay: float = Field(0.0, ge=0, description="AdamW's decoupled weight decay")
    scheduler: Literal["cosine", "linear", "constant"] = Field(
        "cosine", description="learning rate after warm-up"
    )
    warmup_ratio: Fraction = Field(0.03, description="part of the steps spent on linear warm-up")
    max_grad_norm: float = Field(1.0, gt=0, description="gradients are clipped to this norm")
    determinism: Literal["strict", "free"] = Field("strict", description="'strict': the same bytes each time")
    dtype: Literal["float32", "bfloat16"] = Field("float32", description="type of weights and computation")
    logging_steps: Positive = Field(10, description="steps between lines of metrics.jsonl; in no key")
    checkpoint_steps: Positive = Field(100, description="steps between checkpoints for resuming; in no key")

    @model_validator(mode="after")
    def _one_length(self) -> Train:
        if (self.epochs is None) == (self.max_steps is None):
            raise ValueError("give exactly one of 'epochs' and 'max_steps'")
        return self


class Gate(Section):
    """The test that a tuned model must pass against its base."""

    task: str = Field(
        description="the task's name, one of eval.tasks (of a task file: its name without .yaml)"
    )
    metric: str = Field("acc", description="a metric with one score a row, higher is better")
    min_rows: int = Field(200, ge=200, description="held-out rows needed for a verdict")
    standard_errors: float = Field(
        3.0, ge=3.0, description="the gain must exceed this many paired standard errors"
    )


class Eval(Section):
    """Judging base and tuned model with lm-eval."""

    tasks: Texts = Field(
        min_length=1, description="lm-eval tasks by name, or task files (.yaml) in the package"
    )
    files: Texts = Field((), description="globs of the data files in the package that the task files name")
    revisions: dict[Annotated[str, Field(pattern=r"^[\w.-]+(/[\w.-]+)?$")], Revision] = Field(
        default_factory=dict,
        description="for tasks given by name: the commit of each dataset that they read, by its Hub name",
    )
    num_fewshot: int = Field(0, ge=0, description="worked examples before each question")
    limit: Positive | None = Field(None, description="rows per task, the first ones; absent: all")
    batch_size: Positive = Field(
        16, description="requests at a time; it may change the last bits, so it is keyed"
    )
    chat_template: bool = Field(False, description="ask through the model's chat template, as a user's turn")
    gate: Gate | None = Field(None, description="when the tuned model passes")

    @property
    def task_names(self) -> tuple[str, ...]:
        """The tasks' names: those of task files are the files' names without .yaml."""
        return tuple(PurePosixPath(t).stem if is_task_file(t) else t for t in self.tasks)

    @model_validator(mode="after")
    def _gate_task(self) -> Eval:
        doubled = sorted({n for n in self.task_names if self.task_names.count(n) > 1})
        if doubled:
            raise ValueError(f"task '{doubled[0]}' is given twice in 'tasks'")
        named = [t for t in self.tasks if not is_task_file(t)]
        if named and not self.revisions:
            raise ValueError(
                f"task '{named[0]}' reads a dataset of the Hub, which may change: pin it in 'revisions', "
                f"as in {{owner/name: <the commit's 40 hexadecimal characters>}}"
            )
        if self.gate and self.gate.task not in self.task_names:
            raise ValueError(
                f"gate.task '{self.gate.task}' is none of the tasks: {', '.join(self.task_names)}"
            )
        if self.gate and self.limit is not None and self.limit < self.gate.min_rows:
            raise ValueError(f"limit {self.limit} leaves fewer rows than gate.min_rows {self.gate.min_rows}")
        return self


class Quantize(Section):
    """Smaller weights with AMD Quark."""

    scheme: Literal["ptpc_fp8", "fp8"] = Field(
        "ptpc_fp8", description="FP8 per token and channel, or per tensor"
    )
    exclude: Texts = Field(
        ("lm_head",), description="layers left as they are, by name; * stands for any text"
    )
    calibration_rows: Positive | None = Field(
        None, description="packed sequences that 'fp8' measures its input scales on; absent: 64"
    )

    @model_validator(mode="after")
    def _calibrated(self) -> Quantize:
        if self.calibration_rows is not None and self.scheme != "fp8":
            raise ValueError(
                f"'calibration_rows' has no effect on {self.scheme}, which measures each token as it comes"
            )
        return self


class Schema(Section):
    """A whole recipe."""

    meta: Meta = Field(default_factory=lambda: Meta.model_validate({}))
    hardware: Hardware = Field(default_factory=lambda: Hardware.model_validate({}))
    autotune: Autotune | None = None
    model: Model
    data: Data | None = None
    train: Train | None = None
    eval: Eval | None = None
    quantize: Quantize | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> Schema:
        if self.train is not None:
            self._training_fits(self.train)
        elif self.autotune is not None:
            raise ValueError("'autotune' plans a training: it needs 'train'")
        if self.eval and self.eval.gate and self.train is None:
            raise ValueError("eval.gate compares the tuned model with its base: it needs 'train'")
        init = self.model.init
        if init and self.data and self.data.pack.max_length > init.max_position_embeddings:
            raise ValueError(
                f"data.pack.max_length {self.data.pack.max_length} is longer than "
                f"model.init.max_position_embeddings {init.max_position_embeddings}"
            )
        return self

    def _training_fits(self, train: Train) -> None:
        if self.data is None:
            raise ValueError("'train' needs a 'data' section")
        if self.autotune is None:
            raise ValueError(
                "'train' needs an 'autotune' section: the plan chooses attention, compile and micro_batch"
            )
        for size in self.autotune.micro_batch:
            if train.batch_size % size:
                raise ValueError(
                    f"autotune.micro_batch {size} does not divide train.batch_size {train.batch_size}"
                )
        init = self.model.init
        if init and train.lora:
            narrowest = min(
                init.hidden_size, init.intermediate_size, init.num_key_value_heads * init.head_dim
            )
            if train.lora.r > narrowest:
                raise ValueError(
                    f"train.lora.r {train.lora.r} is larger than the model's narrowest layer ({narrowest}): "
                    f"the adapter would be larger than what it adapts"
                )


def is_task_file(task: str) -> bool:
    """Whether an entry of eval.tasks is a file of the package (else the name of an lm-eval task)."""
    return re.search(r"\.ya?ml$", task) is not None
