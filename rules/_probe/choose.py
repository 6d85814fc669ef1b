"""From timings to decisions: pure, so that it can be tried on any timings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rules._probe.candidates import Candidate

TIE = 0.02
ENOUGH = 20  # samples of which the slowest twentieth says something


@dataclass
class Measurement:
    """What is known of a candidate. samples: seconds of a micro-batch, forward and backward.

    compile_s: seconds to compile, once a run. reason: why it cannot win, or None.
    """

    candidate: Candidate
    samples: list[float] = field(default_factory=list)
    compile_s: float = 0.0
    reason: str | None = None

    @property
    def measured(self) -> bool:
        return self.reason is None and bool(self.samples)


def median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def p95(values: Sequence[float]) -> float:
    """The smallest value that at least 95 % of the values do not exceed."""
    return sorted(values)[math.ceil(0.95 * len(values)) - 1]


def step_seconds(measurement: Measurement, batch_size: int, scale: float = 1.0) -> float:
    """Seconds of an optimizer step without compiling. scale: layers of the model by layers measured."""
    return median(measurement.samples) * (batch_size // measurement.candidate.micro_batch) * scale


def cost(measurement: Measurement, batch_size: int, steps: int, scale: float = 1.0) -> float:
    """Seconds per optimizer step, compiling spread over the planned steps."""
    return step_seconds(measurement, batch_size, scale) + measurement.compile_s / steps


def choose(
    measurements: Sequence[Measurement], batch_size: int, steps: int, scale: float = 1.0
) -> tuple[Candidate | None, list[dict[str, Any]]]:
    """The winner, and for the evidence every candidate with its figures or its reason.

    measurements come in the order of preference: of all within 2 % of the cheapest the first
    wins, so that noise does not decide. Without any measured candidate the winner is None.
    """
    costs = {m.candidate: cost(m, batch_size, steps, scale) for m in measurements if m.measured}
    least = min(costs.values(), default=math.inf)
    winner = next((c for c, value in costs.items() if value <= least * (1 + TIE)), None)
    rows = []
    for m in measurements:
        row: dict[str, Any] = {"candidate": m.candidate.name, "chosen": m.candidate == winner}
        if m.samples:
            row |= {
                "micro_batch_s_median": median(m.samples),
                # of fewer it is the largest, which says nothing about the others to come
                **({"micro_batch_s_p95": p95(m.samples)} if len(m.samples) >= ENOUGH else {}),
                "samples": len(m.samples),
                "compile_s": m.compile_s,
                "step_s": step_seconds(m, batch_size, scale),
                "cost_s": cost(m, batch_size, steps, scale),
            }
        if m.reason is not None:
            row["reason"] = m.reason
        rows.append(row)
    return winner, rows
