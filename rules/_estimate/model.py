"""A model's weights: how many, and what they weigh on the disk and on the way."""

from __future__ import annotations

from mxt.estimates import Asked, Estimate, Figure
from rules._estimate.sizes import BYTES, active, shape_of, weights


def estimate(asked: Asked) -> Estimate:
    model = asked.recipe["model"]
    shape = shape_of(model, asked.package)
    if shape is None:
        return Estimate(
            unknown=[f"size of {model['hub']['repo']}: not among the models that are known before a download"]
        )
    made = model["init"] is not None
    total = weights(shape)
    figures = [Figure("weights", total, note="new" if made else model["hub"]["repo"])]
    if shape.experts is not None:
        figures.append(Figure("of which a token uses", active(shape)))
    figures.append(
        Figure("on the disk", total * BYTES["float32"], "bytes")
        if made
        else Figure("download and disk", total * BYTES["bfloat16"], "bytes", "as bf16")
    )
    return Estimate(figures, facts={"shape": shape})
