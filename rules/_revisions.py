"""Names of versions in a repository: commits cannot change, all else can."""

from __future__ import annotations

import re

UNPINNED = "unpinned"


def is_commit(value: str) -> bool:
    """Whether a revision is a commit, and no branch, tag or 'unpinned'."""
    return re.fullmatch(r"[0-9a-f]{40}", value) is not None
