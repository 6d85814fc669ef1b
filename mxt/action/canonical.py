"""The canonical form: the one JSON encoding that keys, trees, realisations and receipts share.

Keys are ASCII and floats are text, so a sorted compact dump equals RFC 8785 (a property test
holds the two against each other).
"""

from __future__ import annotations

import json
import math
from typing import Any

from mxt.errors import MxtError

MAX_INTEGER = 2**53
FLOAT_TAG = "$float"


def canonical(value: object) -> Any:
    """value with floats as {"$float": shortest round-trip text}, tuples as lists.

    Raises MxtError for what has no canonical form: NaN, integers beyond 2^53, keys that are
    not ASCII text or begin with "$", other types.
    """
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        if abs(value) > MAX_INTEGER:
            raise MxtError(
                f"integer {value} is beyond 2^53 and has no exact form in JSON",
                hint="write it as a string",
            )
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise MxtError(f"{value} cannot be keyed", hint="use a finite number")
        return {FLOAT_TAG: repr(value)}
    if isinstance(value, (list, tuple)):
        return [canonical(v) for v in value]
    if isinstance(value, dict):
        out = {}
        for key, item in value.items():
            if not isinstance(key, str) or not key.isascii() or key.startswith("$"):
                raise MxtError(f"key {key!r} must be ASCII text that does not begin with '$'")
            out[key] = canonical(item)
        return out
    raise MxtError(f"a {type(value).__name__} cannot be keyed: {value!r}")


def restore(value: Any) -> Any:
    """The inverse of `canonical`: floats back as floats."""
    if isinstance(value, list):
        return [restore(v) for v in value]
    if isinstance(value, dict):
        if len(value) == 1 and FLOAT_TAG in value:
            return float(value[FLOAT_TAG])
        return {k: restore(v) for k, v in value.items()}
    return value


def dump(form: Any) -> bytes:
    """The bytes of a form already made canonical (no floats in it)."""
    return json.dumps(
        form, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode("utf-8")


def load(data: bytes) -> Any:
    """Parse bytes that must already be canonical; raises ValueError where they are not."""
    form = json.loads(data, parse_float=_no_float, parse_int=_exact)
    if dump(form) != data:
        raise ValueError("not in canonical form")
    return form


def _no_float(text: str) -> float:
    # "7.0" would survive the round trip below, and be a second spelling of 7
    raise ValueError(f"a float, {text}, is not in canonical form")


def _exact(text: str) -> int:
    number = int(text)
    if abs(number) > MAX_INTEGER:
        raise ValueError(f"integer {text} is beyond 2^53")
    return number
