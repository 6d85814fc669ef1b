"""Reads the training rows shard by shard: checks and normalises each, and signs it for deduplication.

One action a shard, and a shard is a source file or each rows_per_shard lines of one, so a changed
row re-runs its shard only. Outputs: rows.jsonl, one {"messages": [...]} or {"text": ...} a line;
passed_over.json, the lines (from 1; of Parquet, rows) that gave none, by which a later stage can tell
a row's line; signatures.npy (only where the recipe has data.dedupe): uint32, one line a row, the
row's BLAKE3 in 8 columns, then num_perm columns of MinHash.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mxt.rule import Attributes, Config, Label, Labels, Resources, Run
from rules._pieces import UNKEYED, pieces_of, provenance, where
from rules._refusals import rows

if TYPE_CHECKING:
    from typing import Self

    from mxt.graph.target import Target
    from rules._lines import Row

__all__ = ["KEYED", "UNKEYED", "VERSION", "Attrs", "actions", "read_shard"]
VERSION = 1
ESTIMATE = "_estimate.shards"
KEYED = (
    "data.format",
    "data.on_bad_rows",
    "data.max_row_bytes",
    "data.dedupe.minhash.num_perm",
    "data.dedupe.minhash.ngram",
)
# words, and operators between operands: x + y is not x - y
_SIGN = r"(?:-|-=|[+*/%^=<>&|~]{1,3})"
WORD = re.compile(rf"\w+|(?<=[\w)\]]){_SIGN}(?=[\w(\[])|(?<=[\w)\]] ){_SIGN}(?= [\w(\[])")
EXACT_COLUMNS = 8
MINHASH_SEED = 1
EXAMPLES = 20


class Attrs(Attributes):
    """files: sources. fetched: a target whose outputs are the files. signatures: whether to make them."""

    config: Config
    files: Labels = ()
    fetched: Label | None = None
    signatures: bool = False


def actions(target: Target) -> None:
    """One action for each shard, in the order of the files."""
    pieces = pieces_of(target)
    outputs = {"rows": "rows.jsonl", "passed_over": "passed_over.json"}
    if target.attrs.signatures:
        outputs["signatures"] = "signatures.npy"
    for i, piece in enumerate(pieces):
        target.action(
            run=read_shard,
            name=f"{i:04d}",
            mnemonic="Shard",
            inputs={"rows": piece},
            outputs=outputs,
            unkeyed=provenance(piece),
            resources=Resources(cpus=1, memory_mb=300),
            refuse=rows(target.config),
        )


def read_shard(run: Run) -> None:
    """Write the shard's good rows and, where asked, their signatures."""
    from mxt.action.canonical import dump

    path: Path = run.inputs["rows"]
    source = run.unkeyed.get("source") or path.name
    sign = Signatures(run) if "signatures" in run.outputs else None
    passed_over: list[int] = []
    place = 0
    with Report(run, str(source)) as report, run.outputs["rows"].open("wb") as out:
        for number, row in _good_rows(run, path, report):
            passed_over += range(place + 1, number)
            place = number
            line = dump(row)
            out.write(line + b"\n")
            if sign:
                sign.add(row, line)
    run.outputs["passed_over"].write_bytes(dump(passed_over))
    if sign:
        sign.write(run.outputs["signatures"])


def _good_rows(run: Run, path: Path, report: Report) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each with its line, counted from 1 where this shard begins."""
    from rules._forms import detect, known_forms, left_out, normalise
    from rules._lines import BadRow, read_rows

    form = run.config["data.format"]
    if form == "auto":
        form = None
    first_line = run.unkeyed.get("first_line") or 1
    try:
        for row in read_rows(path, run.config["data.max_row_bytes"], first_line):
            report.read += 1
            if report.read % 1000 == 0:
                run.report(step=report.read, note=f"{report.read} rows read")
            if row.bad:
                report.bad(row, row.bad)
                continue
            if form is None:
                form = detect(row.value)
                if form is None:
                    fields = ", ".join(map(repr, row.value)) or "(none)"
                    raise run.fail(
                        f"the form of the rows cannot be told from the fields {fields}",
                        where=where(report.source, row.number),
                        hint=f"set data.format; the forms and their fields: {known_forms()}",
                    )
            try:
                value = normalise(row.value, form)
            except BadRow as bad:
                report.bad(row, bad)
                continue
            report.kept += 1
            report.form = form
            report.left_out.update(left_out(row.value, form))
            yield row.number - first_line + 1, value
    except BadRow as error:  # the file as a whole
        raise run.fail(error.reason, where=report.source, hint=error.hint) from None
    if report.read == 0:
        raise run.fail("no rows in the file", where=report.source, hint="it is empty or has blank lines only")


class Report:
    """Counts what was read and dropped; the first bad row ends the stage unless the recipe says 'skip'."""

    def __init__(self, run: Run, source: str) -> None:
        self.run = run
        self.source = source
        self.read = 0
        self.kept = 0
        self.form: str | None = None
        self.reasons: Counter[str] = Counter()
        self.left_out: Counter[str] = Counter()  # fields that no training row has
        self.examples: list[dict[str, str]] = []
        run.evidence.mkdir(parents=True, exist_ok=True)
        self._kept_rows = None
        if run.config["data.on_bad_rows"] == "skip":
            self._kept_rows = (run.evidence / "bad_rows.jsonl").open("w", encoding="utf-8")

    def bad(self, row: Row, bad: Any) -> None:
        """Raises StageError, or with on_bad_rows: skip counts the row and keeps it as evidence."""
        place = where(self.source, row.number)
        if self._kept_rows is None:
            skip = "or set data.on_bad_rows: skip to leave such rows out"
            hint = f"{bad.hint}; {skip}" if bad.hint else f"mend the row, {skip}"
            raise self.run.fail(bad.reason, where=place, hint=hint)
        self.reasons[bad.reason] += 1
        example = {"where": place, "reason": bad.reason, "detail": bad.hint, "row": row.shown}
        if len(self.examples) < EXAMPLES:
            self.examples.append(example)
        self._kept_rows.write(json.dumps(example) + "\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Write report.json into the evidence, also of a shard that failed."""
        if self._kept_rows is not None:
            self._kept_rows.close()
        if self.reasons:
            count = sum(self.reasons.values())
            self.run.report(summary=f"{count} bad row{'s' if count > 1 else ''} skipped, see bad_rows.jsonl")
        text = {
            "source": self.source,
            "form": self.form,
            "read": self.read,
            "kept": self.kept,
            "dropped": dict(sorted(self.reasons.items())),
            "fields_left_out": dict(sorted(self.left_out.items())),
            "examples": [{k: v for k, v in e.items() if k != "row"} for e in self.examples],
        }
        (self.run.evidence / "report.json").write_text(json.dumps(text, indent=1) + "\n")
        from rules._panels import DATA, dropped

        bad = {f"bad row: {reason}": count for reason, count in sorted(self.reasons.items())}
        dropped(self.run, "read", {"rows in the files": self.read, **bad})
        if self.examples:
            self.run.panel(
                "table",
                "Bad rows",
                section=DATA,
                columns=["where", "reason", "detail"],
                rows=[[e["where"], e["reason"], e["detail"]] for e in self.examples],
                note="The first of each shard; all are in the evidence, bad_rows.jsonl.",
            )
        if self.left_out:
            self.run.panel(
                "table",
                "Fields that no training row has",
                section=DATA,
                columns=["field", "rows"],
                rows=sorted(map(list, self.left_out.items())),
                add_up=True,
            )


class Signatures:
    """The digests by which dedupe compares rows without reading them again."""

    BATCH = 4096

    def __init__(self, run: Run) -> None:
        self._num_perm: int = run.config["data.dedupe.minhash.num_perm"] or 0
        self._ngram: int = run.config["data.dedupe.minhash.ngram"] or 1
        self._exact: list[bytes] = []
        self._waiting: list[list[str]] = []
        self._digests: list[Any] = []

    def add(self, row: dict[str, Any], line: bytes) -> None:
        """row: as normalised; line: its canonical bytes."""
        from blake3 import blake3

        self._exact.append(blake3(line).digest())
        if self._num_perm:
            self._waiting.append(shingles(row, self._ngram))
            if len(self._waiting) >= self.BATCH:
                self._flush()

    def _flush(self) -> None:
        import rensa

        self._digests += rensa.RMinHash.digests_from_token_sets(self._waiting, self._num_perm, MINHASH_SEED)
        self._waiting = []

    def write(self, path: Path) -> None:
        """One row of uint32 for each row added."""
        import numpy

        if self._waiting:
            self._flush()
        exact = numpy.frombuffer(b"".join(self._exact), dtype="<u4").reshape(-1, EXACT_COLUMNS)
        near = numpy.array(self._digests, dtype="<u4").reshape(len(exact), self._num_perm)
        numpy.save(path, numpy.hstack([exact, near]), allow_pickle=False)


def shingles(row: dict[str, Any], ngram: int) -> list[str]:
    """The row's runs of ngram words, without case and punctuation; a shorter row is one shingle."""
    texts = [m["content"] for m in row["messages"]] if "messages" in row else [row["text"]]
    words = WORD.findall("\n".join(texts).lower())
    if len(words) <= ngram:
        return [" ".join(words)]
    return sorted({" ".join(words[i : i + ngram]) for i in range(len(words) - ngram + 1)})
