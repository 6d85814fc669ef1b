"""Ranges put together: factors that have nothing to do with each other are seldom all at the same end."""

from __future__ import annotations

import math

from mxt.estimates import Range


def product(*factors: Range) -> Range:
    """The product of independent factors: their logarithms' half widths add up as the sides of a right angle.

    Four factors of two would span a factor of sixteen from corner to corner, and of four so. A factor
    that may be 0 makes the product 0 to the corner.
    """
    if any(f.low <= 0 for f in factors):
        return Range(0.0, math.prod(f.high for f in factors))
    middle = math.exp(sum(math.log(f.low * f.high) for f in factors) / 2)
    half = math.exp(math.hypot(*(math.log(f.high / f.low) / 2 for f in factors)))
    return Range(middle / half, middle * half)


def inverse(factor: Range) -> Range:
    return Range(1 / factor.high, 1 / factor.low)
