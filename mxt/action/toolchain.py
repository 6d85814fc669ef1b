"""Toolchains: the public surface of locks, checks and views (each in its own file beside this one)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from mxt.action.site_view import SiteView, site_view
from mxt.action.toolchain_check import Depth, check
from mxt.action.toolchain_lock import Difference, Distribution, Interpreter, Lock, mismatch, read_lock
from mxt.action.toolchain_make import make_lock, read_pins

__all__ = [
    "Depth",
    "Difference",
    "Distribution",
    "Interpreter",
    "Lock",
    "SiteView",
    "check",
    "make_lock",
    "mismatch",
    "read_lock",
    "read_pins",
    "require",
    "site_view",
]


def require(
    lock: Lock,
    site: Path,
    state: Path | None = None,
    *,
    depth: Depth = Depth.FILES,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Raises ToolchainError, listing every difference, where site-packages `site` is not the lock's.

    state: a file that remembers what was seen; with it a second look takes 0.2 s instead of seconds.
    """
    differences = check(lock, site, state=state, depth=depth, progress=progress)
    if differences:
        raise mismatch(lock, differences)
