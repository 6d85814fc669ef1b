"""Pre-training of a new model: its steps are given, so only the speed is a range."""

from __future__ import annotations

from mxt.estimates import Asked, Estimate, Figure, Range
from rules._devices import family_of
from rules._estimate.money import cost
from rules._estimate.sizes import shape_of_init
from rules._estimate.speed import cpu_rate, work
from rules._estimate.together import inverse, product

LOADING = Range(2, 15)


def estimate(asked: Asked) -> Estimate:
    wanted, hardware = asked.recipe["model"]["pretrain"], asked.recipe["hardware"]
    shape = shape_of_init(asked.recipe["model"]["init"])
    tokens = wanted["steps"] * wanted["batch_size"] * wanted["length"]
    figures = [Figure("tokens", tokens, note="steps x batch_size x length")]
    if family_of(hardware["platform"]) != "cpu":
        return Estimate(figures, unknown=["seconds: pre-training runs in a plain loop on the CPU"])
    each = work(shape, False, Range.exactly(wanted["length"])).total
    speed = cpu_rate(shape, asked.platform.get("threads", 1), trainer=False)
    seconds = product(each.times(tokens), inverse(speed)).plus(LOADING)
    figures.append(Figure("operations a token", each.high, "FLOP"))
    return Estimate(figures, seconds=seconds, cost=cost(hardware, seconds))
