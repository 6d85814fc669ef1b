"""Which files, or lines of them, are the shards of a recipe, and where each comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mxt.rule import Run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mxt.graph.target import Handle, Target

# a shard is keyed by its own bytes, not by how its file was cut
UNKEYED = ("data.rows_per_shard",)


def pieces_of(target: Target) -> list[Handle]:
    """One handle a shard, in order. target: of a rule with the attributes files and fetched."""
    lines = target.unkeyed["data.rows_per_shard"]
    pieces: list[Handle] = []
    for label in target.attrs.files:
        handle = target.source(label)
        if lines is None:
            pieces.append(handle)
        elif handle.path.endswith(".parquet"):
            raise Run.fail(
                f"data.rows_per_shard cannot split '{handle.origin}'",
                where=target.label,
                hint="it applies to JSONL; leave it out, then each Parquet file is one shard",
            )
        else:
            pieces += target.split(handle, lines)
    if target.attrs.fetched:
        pieces += target.outputs(target.attrs.fetched)
    return pieces


def provenance(piece: Handle) -> dict[str, Any]:
    """Unkeyed values by which `where` names a row: that is for messages, a moved row is the same row."""
    source = f"{piece.origin}/{piece.path}" if piece.action or "//" in piece.origin else piece.origin
    return {"source": source, "first_line": piece.line}


def where(source: str, number: int) -> str:
    """file:line, or for Parquet, which has no lines, file:row."""
    return f"{source}:row {number}" if source.endswith(".parquet") else f"{source}:{number}"


def line_of(number: int, passed_over: Sequence[int], first_line: int = 1) -> int:
    """The line of kept row number (from 0). passed_over: lines of the shard, from 1, that gave no row."""
    line = number + 1
    for other in passed_over:
        if other > line:
            break
        line += 1
    return first_line - 1 + line
