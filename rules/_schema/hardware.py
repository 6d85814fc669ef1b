"""hardware: the declared device, a shape for each family with that family's own limits."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from mxt.errors import did_you_mean
from rules._devices import DEVICES, MI300X_ENV, family_of
from rules._schema.base import Section

Environment = dict[Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]*$")], str]
PLATFORM = "a platform of the root package: 'cpu' is //:cpu, 8 x 'mi300x' is //:mi300x_8x"
PRICE = "US dollars an hour for one GPU (on a CPU: for the machine); for costs in the evidence, in no key"
ENV = "variables that every stage on the device starts with"


class Hardware(Section):
    """The declared device."""

    platform: str = Field("cpu", description=PLATFORM)
    gpus: int = Field(1, description="GPUs of one machine")
    env: Environment = Field(default_factory=dict, description=ENV)
    price_per_hour: float | None = Field(None, ge=0, description=PRICE)

    @model_validator(mode="after")
    def _count(self) -> Hardware:
        family = family_of(self.platform)
        if family is None or not re.fullmatch("[a-z0-9_]+", self.platform):
            near = did_you_mean(self.platform.lower(), DEVICES)
            if self.platform.lower() in DEVICES:
                near = f", did you mean '{self.platform.lower()}'?"
            raise ValueError(
                f"platform '{self.platform}' names no known device{near}\n"
                f"its name begins with one of {', '.join(DEVICES)}"
            )
        counted = re.fullmatch("(.+)_([0-9]+)x", self.platform)
        if counted:
            raise ValueError(
                f"platform '{self.platform}' counts GPUs\nwrite '{counted[1]}', and gpus: {counted[2]}"
            )
        device = DEVICES[family]
        if self.gpus not in device.gpus:
            raise ValueError(f"gpus is {self.gpus}, on the {family} it must be {device.allowed}{device.why}")
        return self


class Cpu(Hardware):
    """A processor and no GPU."""

    gpus: int = Field(0, description="none: a CPU recipe uses no GPU")
    env: Environment = Field(
        default_factory=dict, description="none: the platform's own env caps the instruction set"
    )

    @field_validator("env")
    @classmethod
    def _none(cls, value: dict[str, str]) -> dict[str, str]:
        if value:
            raise ValueError(
                "is for GPUs\nleave it out: the platform in the root MXTBUILD has a CPU's variables"
            )
        return value


class Mi300xFamily(Hardware):
    """AMD Instinct MI300X, MI325X, MI350X and MI355X: 1 or 8 GPUs, and eight variables."""

    env: Environment = Field(
        default_factory=lambda: dict(MI300X_ENV),
        description=f"{ENV}: the family's eight (absent: their usual values) and any others",
    )

    @field_validator("env")
    @classmethod
    def _eight(cls, value: dict[str, str]) -> dict[str, str]:
        missing = [name for name in MI300X_ENV if name not in value]
        if missing:
            raise ValueError(
                f"lacks {', '.join(missing)}\n"
                "the MI300X family keeps all eight: change a value and keep its name, or leave 'env' out"
            )
        return value

    @model_validator(mode="after")
    def _architecture(self) -> Mi300xFamily:
        arch = DEVICES[family_of(self.platform) or "mi300x"].arch
        if self.env["PYTORCH_ROCM_ARCH"] != arch:
            if "env" not in self.model_fields_set:  # the usual values follow the device
                object.__setattr__(self, "env", {**self.env, "PYTORCH_ROCM_ARCH": arch})
            else:
                given = self.env["PYTORCH_ROCM_ARCH"]
                raise ValueError(f"env.PYTORCH_ROCM_ARCH is {given}, and the {self.platform} is {arch}")
        return self


class Instinct(Hardware):
    """AMD Instinct MI250X: one of its two dies counts as one GPU."""


class Radeon(Hardware):
    """AMD Radeon of the gfx1201 chip, such as the AI PRO R9700."""


class Nvidia(Hardware):
    """NVIDIA A100, H100 and H200."""


def _kind(value: Any) -> str:
    """Which shape a section has, told by the device that its platform names; "unknown" for others."""
    platform = value.get("platform", "cpu") if isinstance(value, dict) else getattr(value, "platform", "cpu")
    family = family_of(platform) if isinstance(platform, str) else None
    if family is None:
        return "unknown"
    device = DEVICES[family]
    if device.maker == "amd":
        return {"gfx90a": "instinct", "gfx1201": "radeon"}.get(device.arch, "mi300x")
    return device.maker


AnyHardware = Annotated[
    Annotated[Cpu, Tag("cpu")]
    | Annotated[Mi300xFamily, Tag("mi300x")]
    | Annotated[Instinct, Tag("instinct")]
    | Annotated[Radeon, Tag("radeon")]
    | Annotated[Nvidia, Tag("nvidia")]
    | Annotated[Hardware, Tag("unknown")],
    Discriminator(_kind),
]
