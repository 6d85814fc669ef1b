"""Packed sequences: read from Parquet, and turned into batches in which documents cannot see each other.

There is no attention mask: attention implementations find the documents by the positions, which
restart at zero at each boundary. Padding tokens are documents of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mxt.rule import StageError

if TYPE_CHECKING:
    import pyarrow as pa
    import torch

IGNORE = -100
COLUMNS = ("input_ids", "labels", "seq_lengths")


def read_packed(paths: Sequence[Path], max_length: int) -> pa.Table:
    """All packed rows, in the order of the shards. Raises StageError naming shard and row."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    tables = []
    for path in paths:
        try:
            table = pq.read_table(path, columns=list(COLUMNS))
        except (OSError, pa.ArrowException, KeyError) as error:
            raise StageError(
                f"packed data is not readable: {str(error).splitlines()[0]}",
                where=str(path),
                hint=f"it needs the columns {', '.join(COLUMNS)}",
            ) from error
        lengths = pc.list_value_length(table["input_ids"])
        if len(table) and pc.max(lengths).as_py() > max_length:
            row = pc.index(pc.greater(lengths, max_length), True).as_py()
            raise StageError(
                f"row {row} has {lengths[row].as_py()} tokens, more than data.pack.max_length {max_length}",
                where=str(path),
                hint="pack with the same max_length",
            )
        tables.append(table)
    whole = pa.concat_tables(tables) if tables else pa.table({name: [] for name in COLUMNS})
    if not len(whole):
        raise StageError(
            "there is not one training sequence",
            hint="every row was dropped: see the reports of shards, dedupe, pack",
        )
    if not any(label != IGNORE for row in whole["labels"] for label in (row.as_py() or [])):
        raise StageError(
            "no token of the training data is trained on: all labels are masked",
            hint="rows need an assistant's turn, and the template must mark it with {% generation %}",
        )
    return whole


def padded_length(longest: int) -> int:
    """The next multiple of eight above: at least one padding token.

    A batch without any is one document a row, for which attention takes another path (no mask at
    all): a second shape to compile, in the middle of a run.
    """
    return (longest // 8 + 1) * 8


class PackedCollator:
    """Rows to tensors of (rows, length); rows and length are fixed where a compiler needs it.

    rows: sequences in each batch; a batch at the end of the data gets empty ones, which no loss
    sees. length: tokens a sequence, or None for the longest of each batch.
    """

    def __init__(self, rows: int, length: int | None, pad: int) -> None:
        self.rows = rows
        self.length = length
        self.pad = pad

    def __call__(self, examples: Sequence[dict[str, Any]]) -> dict[str, torch.Tensor]:
        import torch

        length = self.length or padded_length(max(len(e["input_ids"]) for e in examples))
        shape = (self.rows, length)
        ids = torch.full(shape, self.pad, dtype=torch.long)
        labels = torch.full(shape, IGNORE, dtype=torch.long)
        positions = torch.zeros(shape, dtype=torch.long)
        for i, example in enumerate(examples):
            n = len(example["input_ids"])
            ids[i, :n] = torch.as_tensor(example["input_ids"])
            labels[i, :n] = torch.as_tensor(example["labels"])
            start = 0
            for size in example["seq_lengths"]:
                positions[i, start : start + size] = torch.arange(size)
                labels[i, start] = (
                    IGNORE  # the last token of one document does not predict the next one's first
                )
                start += size
            if start != n:
                raise StageError(f"packed row's seq_lengths sum to {start}, its tokens are {n}")
        real = torch.tensor(sum(len(e["input_ids"]) for e in examples))
        return {"input_ids": ids, "labels": labels, "position_ids": positions, "real_tokens": real}
