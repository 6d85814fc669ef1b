"""autotune: what the probe may choose from; it measures each and writes its choice into the plan."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from rules._schema.base import Positive, Section

# PyTorch's own dispatch and plain matrix products run everywhere; the others name one implementation
AMD_ATTENTION = ("ck", "aotriton", "aiter")
NVIDIA_ATTENTION = ("cudnn", "flash", "efficient", "fa3", "fa4")
GPU_ATTENTION = (*AMD_ATTENTION, *NVIDIA_ATTENTION, "flex")
Attention = Literal[
    "sdpa", "eager", "flex", "ck", "aotriton", "aiter", "cudnn", "flash", "efficient", "fa3", "fa4"
]
Gemm = Literal["default", "inductor", "cublaslt", "hipblaslt", "rocblas", "tunable"]
Recompute = Literal["none", "elementwise", "selective", "all"]


class Autotune(Section):
    """The candidates of each choice, in order of preference where two are within 2 %."""

    policy: str = Field("aot_only", description="'aot_only': choices are made before the run, never in it")
    budget_s: float = Field(60.0, gt=0, description="seconds the probe may measure")
    search: Literal["budget", "enumerate"] = Field(
        "budget",
        description="'budget': stop when budget_s is spent; 'enumerate': measure all of them",
    )
    attention: Annotated[tuple[Attention, ...], Field(strict=False)] = Field(
        ("sdpa", "eager"), min_length=1, description="attention implementations"
    )
    gemm: Annotated[tuple[Gemm, ...], Field(strict=False)] = Field(
        ("default",), min_length=1, description="matrix products: the library's own choice, or another's"
    )
    compile: Annotated[tuple[Literal["none", "inductor"], ...], Field(strict=False)] = Field(
        ("none", "inductor"), min_length=1, description="compilers"
    )
    recompute: Annotated[tuple[Recompute, ...], Field(strict=False)] = Field(
        ("none",), min_length=1, description="what the backward pass computes again instead of keeping it"
    )
    micro_batch: Annotated[tuple[Positive, ...], Field(strict=False)] = Field(
        (1, 2, 4),
        min_length=1,
        description="sequences per forward pass and GPU; each must divide a GPU's share of train.batch_size. "
        "Absent: those of the usual ones that do",
    )
    collectives: bool | None = Field(
        None,
        description="with several GPUs: whether to measure all-reduce, all-gather and reduce-scatter; "
        "absent: yes",
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
                f"is '{value}', and there is only 'aot_only'\n"
                "what is chosen while it trains depends on timing, and so would the result"
            )
        return value
