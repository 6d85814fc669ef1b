"""What the probe may choose from, in the fixed order of preference that decides ties."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Candidate:
    """One way to run a step. micro_batch: sequences per forward pass."""

    attention: str
    compile: str
    micro_batch: int

    @property
    def name(self) -> str:
        return f"{self.attention}/{self.compile}/{self.micro_batch}"

    def decisions(self, batch_size: int) -> dict[str, Any]:
        """What the plan holds of it."""
        return {**asdict(self), "gradient_accumulation": batch_size // self.micro_batch}


def enumerate_candidates(recipe: Mapping[str, Any]) -> list[Candidate]:
    """Every combination of the recipe's lists; earlier entries of a list are preferred.

    The compiler counts most in that order, as it costs most to get wrong, then attention, then
    the micro-batch. Repeated entries count once.
    """
    return [
        Candidate(attention, compiler, micro)
        for compiler in dict.fromkeys(recipe["autotune.compile"])
        for attention in dict.fromkeys(recipe["autotune.attention"])
        for micro in dict.fromkeys(recipe["autotune.micro_batch"])
    ]
