"""Seconds times the recipe's price."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mxt.estimates import Range


def cost(hardware: Mapping[str, Any], seconds: Range) -> Range | None:
    """US dollars for all GPUs of the recipe; None without a price."""
    price = hardware["price_per_hour"]
    return None if price is None else seconds.times(price * max(1, hardware["gpus"]) / 3600)
