"""What a rule expects of a target before it runs: ranges of seconds, bytes, money; in no key.

A rule module names another module of its folder, `ESTIMATE = "_cost"`, whose function `estimate(asked)`
returns an Estimate. It may look at the recipe and at the workspace's files, at no device and no
network, and it may read the estimates of what the target depends on (`asked.of(label)`). What it does not
know it leaves out, and says so: `mxt build -n --estimate` adds up what is there and names what is not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple


class Range(NamedTuple):
    """From low to high; both are the same for what is known exactly."""

    low: float
    high: float

    @classmethod
    def exactly(cls, value: float) -> Range:
        return cls(value, value)

    def times(self, other: float | Range) -> Range:
        low, high = other if isinstance(other, Range) else (other, other)
        return Range(self.low * low, self.high * high)

    def over(self, other: float | Range) -> Range:
        low, high = other if isinstance(other, Range) else (other, other)
        return Range(self.low / high, self.high / low)

    def plus(self, other: Range) -> Range:
        return Range(self.low + other.low, self.high + other.high)


Value = Range | float | str


class Figure(NamedTuple):
    """One line. unit: "" for a plain count, "bytes", "s" (seconds), or any word, shown behind the figures.

    note: how it is known, or what it leaves out.
    """

    name: str
    value: Value
    unit: str = ""
    note: str = ""


class Cell(NamedTuple):
    """One field of a grid. unit: as of Figure. mark: a word behind it, such as "fits"."""

    value: Value
    unit: str = ""
    mark: str = ""


class Grid(NamedTuple):
    """A table: columns[0] heads the names, which rows hold as their first field."""

    title: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[Cell]]]
    note: str = ""


@dataclass(frozen=True)
class Estimate:
    """What is expected of one target.

    seconds: how long its work takes. cost: in the currency of the recipe's price, for those seconds.
    unknown: what is not estimated, each with its reason. facts: for estimates of what reads this target.
    decides: that it takes most of the time; without its seconds no sum is given, as it would mislead.
    """

    figures: Sequence[Figure] = ()
    grids: Sequence[Grid] = ()
    notes: Sequence[str] = ()
    unknown: Sequence[str] = ()
    seconds: Range | None = None
    cost: Range | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    decides: bool = False


@dataclass(frozen=True)
class Asked:
    """A target that is to be estimated.

    attrs: the rule's validated Attrs. recipe: the whole recipe, or {} where the rule has none. root: of
    the workspace. package: the target's folder. platform: the declared platform's properties. of: the
    estimate of another target that this one depends on, None where its rule makes none. files: a
    label's source files and folders.
    """

    label: str
    attrs: Any
    recipe: Mapping[str, Any]
    root: Path
    package: Path
    platform: Mapping[str, Any]
    of: Callable[[str], Estimate | None]
    files: Callable[[str], Sequence[Path]]
