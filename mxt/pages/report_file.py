"""Keeps the report beside a receipt: written when that is, left alone while all is the same."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from mxt.store.action_cache import ActionCache
from mxt.store.digest import hash_bytes
from mxt.store.layout import write_atomic
from mxt.store.os_errors import explain_os_error
from mxt.store.replace_file import replace_file


def report_beside(receipt: str) -> str:
    """The path of the report on the receipt at this path."""
    from mxt.receipt.receipt import REPORT_NAME

    return os.path.join(os.path.dirname(receipt), REPORT_NAME)


def keep_report(receipt: Path, digest: str, *, workspace: Path, cache: ActionCache, engine: str) -> Path:
    """Write the report on a receipt, unless the one that is there was drawn from it by the same code.

    digest: the receipt's. engine: identity of mxt's code. Raises StoreError, UnreadableError.
    """
    path = Path(report_beside(os.fspath(receipt)))
    memory = (
        cache.layout.state / "reports" / hash_bytes(os.fsencode(os.path.relpath(path, cache.layout.root)))
    )
    with contextlib.suppress(OSError, ValueError):
        if memory.read_text("ascii") == _stamp(digest, engine, path.read_bytes()):
            return path
    from mxt.pages.report import write_html
    from mxt.receipt.receipt import read_receipt

    data = write_html(read_receipt(receipt), cache.layout, workspace).encode()
    write_report(path, data)
    with contextlib.suppress(OSError):  # the next build draws it again
        write_atomic(cache.layout, memory, _stamp(digest, engine, data).encode("ascii"))
    return path


def write_report(path: Path, data: bytes) -> None:
    """Raises StoreError."""
    with explain_os_error("write the report", path):
        replace_file(path, data)


def _stamp(digest: str, engine: str, report: bytes) -> str:
    return f"{digest} {hash_bytes(engine.encode())} {hash_bytes(report)}"
