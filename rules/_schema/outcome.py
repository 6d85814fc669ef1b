"""quantize, serve, publish and receipt: what becomes of the tuned model."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from rules._schema.base import Positive, Repo, Section, Texts

Scheme = Literal["ptpc_fp8", "fp8", "mxfp4", "mxfp4_weight_only"]


class Quantize(Section):
    """Smaller weights with AMD Quark."""

    scheme: Scheme = Field(
        "ptpc_fp8",
        description="FP8 per token and channel, or per tensor; MXFP4 of weights and activations, or of "
        "weights alone",
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
                f"calibration_rows has no effect on {self.scheme}\n"
                "leave it out: only 'fp8' is calibrated on data"
            )
        return self


class Serve(Section):
    """An OpenAI-compatible server of the result (the quantized one, if there is one)."""

    engine: Literal["vllm", "sglang", "transformers"] = Field("vllm", description="what serves")
    max_length: Positive = Field(8192, description="tokens of a conversation, at most")
    tool_parser: Literal["none", "hermes", "qwen3_coder", "llama3_json", "mistral"] = Field(
        "none", description="how the model writes calls of functions"
    )
    host: str = Field("127.0.0.1", description="address to listen on; in no key")
    port: int = Field(8000, ge=1, le=65535, description="port to listen on; in no key")
    memory_fraction: float = Field(
        0.9, gt=0, le=1, description="part of the GPU's memory that the server takes; in no key"
    )


class Publish(Section):
    """Where the result is made public; nothing is published by a build, only by `mxt run`."""

    hub: Repo | None = Field(None, description="a repository of the Hugging Face Hub, 'owner/name'")
    private: bool = Field(True, description="the repository is for its owners only")
    ipfs: bool = Field(False, description="also pin it on IPFS, through Lighthouse")
    license: str = Field("", description="SPDX name of the licence on the model card")
    card: str | None = Field(None, description="a Markdown file in the package that opens the model card")

    @model_validator(mode="after")
    def _somewhere(self) -> Publish:
        if self.hub is None and not self.ipfs:
            raise ValueError("hub (or 'ipfs: true') is missing: there is nowhere to publish to")
        return self


class Anchor(Section):
    """The receipt's digest on a chain, so that its time cannot be forged."""

    chain: Annotated[str, Field(pattern=r"^eip155:[1-9][0-9]*$")] = Field(
        "eip155:8453", description="the chain by its CAIP-2 name; eip155:8453 is Base"
    )
    registry: Annotated[str, Field(pattern=r"^0x[0-9a-fA-F]{40}$")] | None = Field(
        None, description="address of the MindxtrainRegistry; absent: the one of the user's configuration"
    )
    confirmations: Positive = Field(12, description="blocks to wait for; in no key")


class Receipt(Section):
    """What happens to the signed receipt beyond this machine."""

    anchor: Anchor | None = Field(None, description="write its digest on a chain")
