"""What every check of a receipt is given."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

from mxt.receipt.findings import Result
from mxt.receipt.hashing import Hashing
from mxt.receipt.receipt import Statement
from mxt.store.layout import Layout


class Given(NamedTuple):
    """hashing: takes what must be hashed. result: takes what is found. show: how a path is named there."""

    statement: Statement
    layout: Layout
    hashing: Hashing
    result: Result
    show: Callable[[str | os.PathLike[str]], str]
