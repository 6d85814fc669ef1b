"""Which files, or lines of them, are the shards of a recipe, and where each comes from."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from mxt.rule import Run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mxt.graph.target import Handle, Target

# a shard is keyed by its own bytes, not by how its file was cut
UNKEYED = ("data.rows_per_shard",)
FORMATS = (".jsonl", ".json", ".parquet")
OTHER = {
    ".csv": "CSV",
    ".tsv": "TSV",
    ".xlsx": "a table of Excel",
    ".arrow": "an Arrow file",
    ".feather": "an Arrow file",
    ".txt": "plain text",
    ".md": "plain text",
    ".yaml": "YAML",
    ".yml": "YAML",
    ".pkl": "a pickle",
    ".pt": "a pickle",
}
COMPRESSED = (".gz", ".zst", ".zstd", ".bz2", ".xz", ".lz4", ".zip", ".tar", ".tgz")


def pieces_of(target: Target) -> list[Handle]:
    """One handle a shard, in order. target: of a rule with the attributes files and fetched."""
    lines = target.unkeyed["data.rows_per_shard"]
    pieces: list[Handle] = []
    for label in target.attrs.files:
        handle = target.source(label)
        must_be_readable(handle.origin, "data.files", target.label)
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


def must_be_readable(name: str, field: str, label: str) -> None:
    """Raises StageError for a file that by its name holds no rows; an unknown ending counts as JSONL."""
    ending = PurePosixPath(name).suffix.lower()
    if ending in COMPRESSED:
        if field == "data.hub.files":
            hint = (
                "name its Parquet or JSONL files; of most datasets the Hub keeps Parquet at the revision "
                "refs/convert/parquet"
            )
            raise Run.fail(f"{field}: '{name}' is compressed, which is not read", where=label, hint=hint)
        unpack = {".gz": "gunzip -k", ".zst": "unzstd", ".bz2": "bunzip2 -k", ".xz": "unxz -k"}.get(ending)
        raise Run.fail(
            f"{field}: '{name}' is compressed, which is not read",
            where=label,
            hint=f"unpack it{f' ({unpack} {name})' if unpack else ''}, or make it Parquet, which compresses",
        )
    if ending in OTHER:
        raise Run.fail(
            f"{field}: '{name}' is {OTHER[ending]}, which is not read",
            where=label,
            hint=f"convert it; files that end in {', '.join(FORMATS)} are read",
        )


def provenance(piece: Handle) -> dict[str, Any]:
    """Unkeyed values by which `where` names a row: that is for messages, a moved row is the same row."""
    source = f"{piece.origin}/{piece.path}" if piece.action or "//" in piece.origin else piece.origin
    return {"source": source, "first_line": piece.line}


def where(source: str, number: int) -> str:
    """file:line, or where rows are no lines (Parquet, an array in a .json file), file:row."""
    return f"{source}:row {number}" if source.endswith((".parquet", ".json")) else f"{source}:{number}"


def line_of(number: int, passed_over: Sequence[int], first_line: int = 1) -> int:
    """The line of kept row number (from 0). passed_over: lines of the shard, from 1, that gave no row."""
    line = number + 1
    for other in passed_over:
        if other > line:
            break
        line += 1
    return first_line - 1 + line
