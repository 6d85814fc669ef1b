"""What all sections share: frozen, unknown fields refused, no type guessed."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from rules._known_models import KNOWN
from rules._revisions import is_commit

Positive = Annotated[int, Field(gt=0)]
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
# YAML has lists only; everything else stays strict, so that "8" is no number and 1 is no boolean
Texts = Annotated[tuple[str, ...], Field(strict=False)]


def _revision(value: str) -> str:
    if re.fullmatch(r"[0-9a-fA-F]{7,40}", value) and not is_commit(value):
        raise ValueError(
            f"is '{value}', which is no whole commit\n"
            "give its 40 lower-case hexadecimal characters, or a branch for 'mxt pin' to look up"
        )
    if not re.fullmatch(r"[\w][\w./+-]*", value) or ".." in value:
        raise ValueError(f"is '{value}', which is no name of a commit, branch or tag")
    return value


# a commit; or 'unpinned', a branch or a tag, which parse and do not build until `mxt pin` has looked them up
Revision = Annotated[str, AfterValidator(_revision)]


def _repo(value: str) -> str:
    if not re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", value, re.ASCII):
        address = re.fullmatch(
            r"(?:https?://)?[\w.-]+\.\w+/(?:datasets/)?(\w[\w.-]*/\w[\w.-]*)(?:/.*)?", value
        )
        known = [repo for repo in KNOWN if repo.rpartition("/")[2].lower() == value.lower()]
        name = address[1] if address else (known or ["Qwen/Qwen3-8B"])[0]
        raise ValueError(
            f"is '{value}', and must be 'owner/name' as on the Hub\n"
            + (f"write '{name}'" if address or known else f"for example '{name}'")
        )
    return value


Repo = Annotated[str, AfterValidator(_repo)]


class Section(BaseModel):
    """A part of a recipe.

    A validator's message begins with the field that it is about, by which its place in the file is found; one
    of a field alone goes on where the field's name ends. A second line says what to do.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)
