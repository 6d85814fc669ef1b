"""One thing that was looked at."""

from __future__ import annotations

from typing import NamedTuple

OK, WARN, FAIL = "ok", "warn", "fail"


class Finding(NamedTuple):
    """area: one word. status: "ok", "warn" (something will not work or be slow) or "fail" (builds fail).

    what: the fact. mend: what to do about it; "" where all is well.
    """

    area: str
    status: str
    what: str
    mend: str = ""
