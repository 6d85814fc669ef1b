"""model: what is tuned; made here, downloaded from the Hub, or a folder of the package."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from rules._revisions import IGNORE, UNPINNED
from rules._schema.base import Positive, Repo, Revision, Section, Texts


class Experts(Section):
    """A mixture of experts in place of each layer's feed-forward part."""

    count: int = Field(ge=2, description="experts a layer")
    per_token: Positive = Field(2, description="experts that each token passes through")
    intermediate_size: Positive = Field(description="width of one expert")

    @model_validator(mode="after")
    def _some(self) -> Experts:
        if self.per_token > self.count:
            raise ValueError(f"per_token {self.per_token} is more than there are experts, {self.count}")
        return self


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
    experts: Experts | None = Field(None, description="make it a mixture of experts (Qwen3-MoE)")

    @model_validator(mode="after")
    def _heads(self) -> Init:
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError(
                f"num_attention_heads {self.num_attention_heads} is not a multiple of "
                f"num_key_value_heads {self.num_key_value_heads}"
            )
        if self.head_dim % 2:
            raise ValueError(f"head_dim {self.head_dim} must be even, as rotary embeddings turn pairs")
        return self


class HubModel(Section):
    """A model of the Hugging Face Hub; safetensors only."""

    repo: Repo = Field(description="'owner/name'")
    revision: Revision = Field(
        UNPINNED, description="the commit, 40 hexadecimal characters; anything else is looked up by `mxt pin`"
    )


class Pretrain(Section):
    """Language modelling on the corpus, so that a new model is a base worth tuning."""

    steps: Positive = Field(description="optimizer steps")
    batch_size: Positive = Field(16, description="sequences a step")
    length: Positive = Field(128, description="tokens a sequence")
    lr: float = Field(3e-3, gt=0, description="peak learning rate (AdamW)")
    weight_decay: float = Field(0.0, ge=0, description="AdamW's decoupled weight decay")
    warmup_steps: int = Field(20, ge=0, description="steps of linear warm-up before the cosine decay")
    checkpoint_steps: Positive = Field(100, description="steps between checkpoints for resuming; in no key")


def _code(value: str) -> str:
    if value not in (UNPINNED, IGNORE) and not re.fullmatch(r"[0-9a-f]{64}", value):
        raise ValueError(
            f"is '{value}', and must be the digest of the code that it trusts\n"
            f"write '{UNPINNED}'; 'mxt pin' then shows the model's Python files and writes their BLAKE3"
        )
    return value


class Model(Section):
    """Where the model comes from: exactly one of init, hub and path."""

    init: Init | None = Field(None, description="make a new one")
    hub: HubModel | None = Field(None, description="download one")
    path: str | None = Field(None, description="a folder in the package, as save_pretrained writes it")
    pretrain: Pretrain | None = Field(None, description="train a new one on its corpus first")
    kind: Literal["text", "vision_language"] = Field(
        "text", description="'text': a causal language model; 'vision_language': one that also reads pictures"
    )
    trust_remote_code: Annotated[str, AfterValidator(_code)] | None = Field(
        None,
        description="digest of the model's own Python files, if it comes with some and may run them; "
        "'ignore': load it without them, by transformers' own class; absent: such a model is refused",
    )

    @model_validator(mode="after")
    def _one_source(self) -> Model:
        given = [n for n in ("init", "hub", "path") if getattr(self, n) is not None]
        if len(given) != 1:
            if not given:
                raise ValueError("hub (or 'init' or 'path') is missing: which model is tuned?")
            raise ValueError(f"{given[0]} and '{given[1]}' are both given\nleave one of them out")
        if self.pretrain is not None and self.init is None:
            raise ValueError("pretrain trains a new model on its corpus: it needs 'init'")
        if self.pretrain and self.init and self.pretrain.length > self.init.max_position_embeddings:
            raise ValueError(
                f"pretrain.length {self.pretrain.length} is longer than "
                f"init.max_position_embeddings {self.init.max_position_embeddings}"
            )
        if self.trust_remote_code is not None and self.init is not None:
            raise ValueError("trust_remote_code has no effect on a model that is made here\nleave it out")
        return self
