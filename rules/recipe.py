"""The recipe: what one YAML file may say, each field with its unit, checked before anything runs.

Every field is read by a stage (its rule names it in KEYED or UNKEYED) or by the macro finetune.mxt,
which turns the sections present into stages. A field that nothing reads is a defect.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field, ValidationInfo, model_validator

from rules._pins import look_up, loose  # what `mxt pin` asks this module for
from rules._schema.autotune import Autotune
from rules._schema.base import Section
from rules._schema.data import Data
from rules._schema.elsewhere import ELSEWHERE
from rules._schema.evaluation import Eval, is_task_file
from rules._schema.hardware import AnyHardware, Cpu
from rules._schema.model import Model
from rules._schema.outcome import Publish, Quantize, Receipt, Serve
from rules._schema.together import check_files, check_metric, check_together
from rules._schema.train import Train

__all__ = ["Meta", "Schema", "is_task_file", "look_up", "loose"]


class Meta(Section):
    """What this run is called and the one seed that all its stages use."""

    description: str = Field("", description="one line for people; kept with the run's evidence, in no key")
    seed: int = Field(2048, ge=0, lt=2**31, description="seed of every random choice of every stage")


class Schema(Section):
    """A whole recipe; its sections stand in the order in which a run reaches them."""

    ELSEWHERE: ClassVar[dict[str, str]] = ELSEWHERE

    meta: Meta = Field(default_factory=lambda: Meta.model_validate({}))
    hardware: AnyHardware = Field(default_factory=lambda: Cpu.model_validate({}))
    autotune: Autotune | None = None
    model: Model
    data: Data | None = None
    train: Train | None = None
    eval: Eval | None = None
    quantize: Quantize | None = None
    serve: Serve | None = None
    publish: Publish | None = None
    receipt: Receipt | None = None

    @model_validator(mode="after")
    def _fits_together(self, info: ValidationInfo) -> Schema:
        check_together(self)
        if info.context:
            check_files(self, info.context["package"])
            check_metric(self, info.context["package"])
        return self
