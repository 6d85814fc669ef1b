"""data: the rows, what is left out of them, and how they become training sequences."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator, model_validator

from rules._revisions import UNPINNED
from rules._schema.base import Positive, Repo, Revision, Section, Texts

Format = Literal[
    "auto",
    "messages",
    "prompt_completion",
    "alpaca",
    "sharegpt",
    "text",
    "preference",
    "rated",
    "prompt",
    "tools",
    "images",
]


class HubData(Section):
    """Files of a dataset on the Hugging Face Hub."""

    repo: Repo = Field(description="'owner/name'")
    revision: Revision = Field(
        UNPINNED, description="the commit, 40 hexadecimal characters; anything else is looked up by `mxt pin`"
    )
    files: Texts = Field(
        min_length=1,
        description="paths in the repository, JSONL or Parquet; each is one shard. Patterns with * are "
        "replaced by `mxt pin` with the files that they match",
    )


class MinHash(Section):
    """Near-duplicate search by MinHash over words."""

    threshold: float = Field(
        0.85, gt=0, le=1, description="estimated Jaccard similarity from which two rows are the same"
    )
    num_perm: int = Field(128, ge=16, le=1024, description="hash functions a signature")
    ngram: int = Field(5, ge=1, le=50, description="words a shingle")


class SemDedup(Section):
    """Search for rows of the same meaning, by the cosine of their embeddings (SemDeDup)."""

    threshold: float = Field(
        0.95, gt=0, le=1, description="cosine similarity from which two rows mean the same"
    )
    repo: Repo = Field("sentence-transformers/all-MiniLM-L6-v2", description="the embedding model on the Hub")
    revision: Revision = Field(UNPINNED, description="its commit")
    clusters: Positive = Field(1024, description="k-means clusters; rows are compared within one")


class Dedupe(Section):
    """Which rows count as repeated; the first occurrence stays."""

    exact: bool = Field(True, description="drop rows equal to an earlier one")
    minhash: MinHash | None = Field(None, description="drop rows nearly equal to an earlier one")
    semdedup: SemDedup | None = Field(None, description="drop rows that mean the same as an earlier one")


class Pack(Section):
    """How rows become training sequences."""

    max_length: int = Field(ge=8, description="tokens a sequence, at most")
    strategy: Literal["bfd", "none"] = Field(
        "bfd",
        description="'bfd': best-fit decreasing, documents kept whole and apart; 'none': one row a sequence",
    )
    overlong: Literal["stop", "truncate", "split", "drop"] = Field(
        "stop",
        description="what to do with a row of more than max_length tokens; 'split' cuts plain text into "
        "several rows",
    )

    @field_validator("strategy", mode="before")
    @classmethod
    def _apart(cls, value: object) -> object:
        """Packing as other trainers offer it runs documents into each other."""
        if value in ("wrapped", "concat", "concatenate", True):
            shown = "true" if value is True else f"'{value}'"
            raise ValueError(
                f"is {shown}, which runs documents into each other\n"
                "'bfd' fills sequences nearly as well and keeps documents whole and apart"
            )
        return "none" if value is False else value


class Data(Section):
    """The training rows: exactly one of files and hub."""

    files: Texts | None = Field(
        None, min_length=1, description="globs of JSONL or Parquet files in the package"
    )
    hub: HubData | None = Field(None, description="download them")
    format: Format = Field(
        "auto",
        description="the rows' form; 'auto' tells it from the first row of each shard. 'preference': prompt, "
        "chosen, rejected; 'rated': prompt, completion, label; 'prompt': a prompt and what its answer is "
        "checked against; 'tools': messages that call functions; 'images': messages with pictures",
    )
    limit: Positive | None = Field(
        None, description="the first rows that are left after dedupe, in the order of the files; absent: all"
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
            if self.files is None:
                raise ValueError("files (or 'hub') is missing: where are the rows?")
            raise ValueError("files and 'hub' are both given\nleave one of them out")
        if self.hub is not None and self.rows_per_shard is not None:
            raise ValueError(
                "rows_per_shard splits files of the workspace\n"
                "leave it out: with 'hub' each file is one shard"
            )
        if self.format == "text" and self.chat_template is not None:
            raise ValueError(
                "chat_template has no effect on plain text\nleave it out, or choose another format"
            )
        return self
