"""Reads the plain-text corpus of a new model as documents, and the tokens that mark what is what."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from mxt.rule import StageError

END_OF_TEXT = "<|endoftext|>"  # between documents, and padding
TURN_START = "<|im_start|>"
TURN_END = "<|im_end|>"  # ends an answer
SPECIAL_TOKENS = (END_OF_TEXT, TURN_START, TURN_END)


def documents(paths: Sequence[Path]) -> Iterator[str]:
    """The corpus in order; blank lines part documents. Raises StageError for bad UTF-8 or no text."""
    found = False
    for path in paths:
        try:
            text = path.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            line = error.object[: error.start].count(b"\n") + 1
            raise StageError(
                "invalid UTF-8 in the corpus",
                where=f"{path.name}:{line}",
                hint=f"byte {error.start}, 0x{error.object[error.start]:02x}; save the file as UTF-8",
            ) from None
        for part in re.split(r"\n\s*\n", text):
            if part.strip():
                found = True
                yield part.strip()
    if not found:
        raise StageError(
            "the corpus holds no text",
            where=", ".join(p.name for p in paths),
            hint="model.init.corpus must name plain-text files",
        )
