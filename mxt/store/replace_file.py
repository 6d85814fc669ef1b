"""Replacing a file outside the store, such as a receipt: readers see the old one or the new one, whole."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path


def replace_file(path: Path, data: bytes) -> None:
    """Write beside it, then rename; leaves nothing behind on failure. Raises OSError."""
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        aside.write_bytes(data)
        os.replace(aside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            aside.unlink()
        raise
