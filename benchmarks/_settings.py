"""What the command line said about how much to measure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Settings:
    """quick: tiny sizes and two runs, for a smoke test. largest: no size above it. limits: by peer."""

    quick: bool = False
    largest: int = 1_000_000
    limits: dict[str, int] = field(default_factory=dict)

    def sizes(self, full: Sequence[int], *, quick: Sequence[int]) -> list[int]:
        return [n for n in (quick if self.quick else full) if n <= self.largest]

    def runs(self, full: int) -> int:
        return min(2, full) if self.quick else full

    def size(self, full: int, *, quick: int) -> int:
        return min(quick if self.quick else full, self.largest)
