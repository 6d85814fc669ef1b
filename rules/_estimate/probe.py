"""The probe measures for its budget at most; around that it loads libraries."""

from __future__ import annotations

from mxt.estimates import Asked, Estimate, Figure, Range
from rules._estimate.money import cost

AROUND = Range(2, 60)  # loading libraries, and the candidate at work when the time is up


def estimate(asked: Asked) -> Estimate:
    autotune = asked.recipe["autotune"]
    budget = autotune["budget_s"]
    if autotune["search"] == "enumerate":
        return Estimate(unknown=["seconds: autotune.search 'enumerate' measures until all is measured"])
    seconds = Range(AROUND.low, budget + AROUND.high)
    figures = [Figure("measuring", Range(0, budget), "s", "autotune.budget_s, at most")]
    return Estimate(figures, seconds=seconds, cost=cost(asked.recipe["hardware"], seconds))
