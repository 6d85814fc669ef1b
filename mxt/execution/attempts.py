"""Where each action's last attempt left its log, also when it failed: for `mxt log`."""

from __future__ import annotations

import os
from pathlib import Path

from blake3 import blake3

from mxt.action.action import ActionId


def _note(folder: Path, identity: ActionId) -> Path:
    return folder / blake3(str(identity).encode()).hexdigest(length=16)


def write_attempt(folder: Path, identity: ActionId, evidence: Path) -> None:
    """Remember an attempt; the note is a relative path, so that a store may be moved."""
    note = _note(folder, identity)
    text = os.path.relpath(evidence, folder)
    try:
        note.write_text(text, encoding="utf-8")
    except FileNotFoundError:
        folder.mkdir(parents=True, exist_ok=True)
        note.write_text(text, encoding="utf-8")


def read_attempt(folder: Path, identity: ActionId) -> Path | None:
    """The evidence folder of the last attempt."""
    try:
        text = _note(folder, identity).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    if len(parts := text.split("/")) < 3 or parts[-3] != "evidence" or "\0" in text or len(text) > 1000:
        return None  # damaged
    return Path(os.path.normpath(folder / text))
