"""Runs the data stages in this process on files of a temporary folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mxt.rule import Run

SHARD: dict[str, Any] = {
    "data.format": "auto",
    "data.on_bad_rows": "stop",
    "data.max_row_bytes": 1000,
    "data.dedupe.minhash.num_perm": 64,
    "data.dedupe.minhash.ngram": 2,
}


def chat(*said: str) -> dict[str, Any]:
    """A row of messages, user and assistant in turn."""
    roles = ("user", "assistant")
    return {"messages": [{"role": roles[i % 2], "content": text} for i, text in enumerate(said)]}


class Shard:
    """What read_shard made of a file. rows: the good ones. report: its counts."""

    def __init__(self, source: Path, folder: Path, *, first_line: int = 1, **config: Any) -> None:
        from rules.shards import read_shard

        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.outputs = {"rows": folder / "rows.jsonl", "signatures": folder / "signatures.npy"}
        self.outputs["passed_over"] = folder / "passed_over.json"
        read_shard(
            Run(
                config={**SHARD, **{f"data.{k}": v for k, v in config.items()}},
                unkeyed={"source": f"data/{source.name}", "first_line": first_line},
                inputs={"rows": source},
                outputs=self.outputs,
                evidence=folder / "evidence",
            )
        )
        self.rows = [json.loads(x) for x in self.outputs["rows"].read_text().split("\n")[:-1]]
        self.report = json.loads((folder / "evidence/report.json").read_text())

    @property
    def bad(self) -> list[dict[str, str]]:
        """The rows left out, as kept in the evidence."""
        return [json.loads(x) for x in (self.folder / "evidence/bad_rows.jsonl").read_text().splitlines()]


def keep(
    shards: list[Shard],
    folder: Path,
    *,
    exact: bool | None = True,
    threshold: float | None = 0.85,
    limit: int | None = None,
) -> Any:
    """(kept row numbers of each shard, report)."""
    from rules.dedupe import dedupe

    folder.mkdir(parents=True, exist_ok=True)
    outputs = {f"keep-{i:04d}": folder / f"keep-{i:04d}.json" for i in range(len(shards))}
    dedupe(
        Run(
            config={
                "data.limit": limit,
                "data.dedupe.exact": exact,
                "data.dedupe.minhash.threshold": threshold,
            },
            inputs={"signatures": [s.outputs["signatures"] for s in shards]},
            outputs=outputs,
            evidence=folder / "evidence",
        )
    )
    report = json.loads((folder / "evidence/report.json").read_text())
    return [json.loads(p.read_text()) for p in outputs.values()], report
