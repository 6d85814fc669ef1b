"""Which results a gc keeps when a store must not grow beyond a size: the most recently used."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from mxt.errors import UsageError
from mxt.store.layout import Layout
from mxt.store.mark import Marks
from mxt.store.measure import run_times

_UNITS = "KMGTP"


@dataclass(frozen=True)
class Fit:
    """limit: bytes. used: action key -> seconds since 1970 when a build last needed it."""

    limit: int
    used: Mapping[str, float]

    def order(self, layout: Layout, marks: Marks) -> list[str]:
        """All keys that no root holds, the last used first; its own run is a use, too."""
        ran = run_times(layout)
        when = {key: max(ran.get(key, 0.0), self.used.get(key, 0.0)) for key in {*ran, *marks.realisations}}
        return sorted(when.keys() - marks.keys, key=lambda key: (-when[key], key))


def parse_size(text: str) -> int:
    """Bytes: "50G" and "50GiB" count in 1024s, "50GB" in 1000s, as in GNU coreutils; "1.5T"; "1000".

    Raises UsageError.
    """
    found = re.fullmatch(
        rf"(\d+(?:\.\d+)?)\s*(?:([{_UNITS}])(i?b)?|b)?", text.strip(), re.IGNORECASE | re.ASCII
    )
    if found is None:
        raise UsageError(
            f"'{text}' is no size",
            hint="write 50G or 50GiB (in 1024s), 50GB (in 1000s), or a number of bytes; units K, M, G, T, P",
        )
    number, unit, tail = found.groups()
    base = 1000 if (tail or "").lower() == "b" else 1024
    whole, _, part = number.partition(".")
    scale = base ** (_UNITS.index(unit.upper()) + 1) if unit else 1
    return int(whole) * scale + (int(part) * scale // 10 ** len(part) if part else 0)
