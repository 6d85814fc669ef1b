"""Names of versions in a repository: commits cannot change, all else can; and patterns of file names."""

from __future__ import annotations

import re
from collections.abc import Sequence

UNPINNED = "unpinned"
IGNORE = "ignore"  # of code: do not run it


def is_commit(value: str) -> bool:
    """Whether a revision is a commit, and no branch, tag or 'unpinned'."""
    return re.fullmatch(r"[0-9a-f]{40}", value) is not None


def is_pattern(name: str) -> bool:
    """Whether a file's name stands for those that it matches."""
    return any(c in name for c in "*?[")


def matching(pattern: str, names: Sequence[str]) -> list[str]:
    """The names that a pattern means, sorted: '*' and '?' stay in a folder, '**/' is any number."""
    piece = re.compile(r"(\*\*/)|(\*+)|(\?)|(\[[^]/]+\])|(.)", re.DOTALL)
    wanted = ""
    for deep, stars, one, several, plain in piece.findall(pattern):
        if deep:
            wanted += "(?:[^/]+/)*"
        elif stars:
            wanted += "[^/]*"
        elif one:
            wanted += "[^/]"
        else:
            wanted += several.replace("[!", "[^").replace("\\", "\\\\") or re.escape(plain)
    try:
        expression = re.compile(wanted)
    except re.error:  # [z-a]
        return []
    return sorted(n for n in names if expression.fullmatch(n))
