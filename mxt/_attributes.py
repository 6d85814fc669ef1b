"""The base class of rule attributes; apart from mxt.rule because pydantic is slow to import."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Attributes(BaseModel):
    """A rule's own attributes: frozen, and unknown names are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
