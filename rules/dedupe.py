"""Finds rows that repeat an earlier one, exactly or nearly, over all shards; the first occurrence stays.

Of what stays, data.limit takes the first rows, in the order of the files and of the rows in them. Reads the
shards' signatures only. Output keep-0000.json is the list of row numbers (from 0) of shard 0000 that stay,
so a shard whose list is unchanged is not packed again; beyond the limit the lists are empty.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mxt.rule import Attributes, Config, Label, Resources, Run, not_yet

if TYPE_CHECKING:
    from mxt.graph.target import Target

VERSION = 1
KEYED = (
    "data.limit",
    "data.dedupe.exact",
    "data.dedupe.minhash.threshold",
    "data.dedupe.semdedup.threshold",
    "data.dedupe.semdedup.repo",
    "data.dedupe.semdedup.revision",
    "data.dedupe.semdedup.clusters",
)
EXACT_COLUMNS = 8  # as shards.py writes them
EXAMPLES = 20


class Attrs(Attributes):
    """shards: the target whose signatures are compared."""

    config: Config
    shards: Label


def actions(target: Target) -> None:
    """One action over all shards: what repeats is a question about the whole."""
    signatures = [h for h in target.outputs(target.attrs.shards) if h.name == "signatures"]
    target.action(
        run=dedupe,
        mnemonic="Dedupe",
        inputs={"signatures": signatures},
        outputs={f"keep-{h.action}": f"keep-{h.action}.json" for h in signatures},
        resources=Resources(cpus=1, memory_mb=512),
        refuse=not_yet(
            "search for rows of the same meaning (semdedup)", hint="leave data.dedupe.semdedup out"
        )
        if target.config["data.dedupe.semdedup.repo"]
        else None,
    )


def dedupe(run: Run) -> None:
    """Write each shard's kept rows, and a report of what repeats what."""
    import numpy

    shards = [numpy.load(p, allow_pickle=False) for p in run.inputs["signatures"]]
    table = numpy.concatenate(shards)
    starts = numpy.cumsum([0, *map(len, shards)])
    original = numpy.full(len(table), -1, dtype=numpy.int64)  # the earlier row that a row repeats
    exact = near = 0
    if run.config["data.dedupe.exact"]:
        exact = mark_exact(table[:, :EXACT_COLUMNS], original)
    threshold = run.config["data.dedupe.minhash.threshold"]
    if threshold is not None:
        near = mark_near(table[:, EXACT_COLUMNS:], threshold, original, run)

    def place(row: int) -> str:
        shard = int(numpy.searchsorted(starts, row, side="right")) - 1
        return f"shard {shard:04d} row {row - int(starts[shard])}"

    limit = run.config["data.limit"]
    staying = numpy.flatnonzero(original < 0)
    taken = staying[:limit]  # all, without a limit
    for i, path in enumerate(run.outputs.values()):
        first, last = numpy.searchsorted(taken, starts[i : i + 2])
        path.write_text(json.dumps((taken[first:last] - starts[i]).tolist(), separators=(",", ":")))
    repeated = numpy.flatnonzero(original >= 0)[:EXAMPLES].tolist()
    examples = [{"row": place(r), "repeats": place(int(original[r]))} for r in repeated]
    report = {
        "rows": len(table),
        "kept": len(taken),
        "dropped": {"exact": exact, "near": near},
        "limit": limit,
        "over_limit": len(staying) - len(taken),
        "examples": examples,
    }
    run.evidence.mkdir(parents=True, exist_ok=True)
    (run.evidence / "report.json").write_text(json.dumps(report, indent=1) + "\n")
    from rules import _panels

    counts = {"copy of an earlier row": exact} if run.config["data.dedupe.exact"] else {}
    if threshold is not None:
        counts[f"nearly an earlier row (at least {threshold:g} of its signature)"] = near
    if limit is not None:
        counts[f"beyond the first {limit:,} (data.limit)"] = len(staying) - len(taken)
        if len(taken) < limit:
            run.report(summary=f"{len(taken)} rows, fewer than data.limit {limit}")
    _panels.dropped(run, "dedupe", counts)
    if repeated:
        run.panel(
            "table",
            "Repeated rows",
            section=_panels.DATA,
            columns=["row", "repeats"],
            rows=[[e["row"], e["repeats"]] for e in examples[: _panels.EXAMPLES]],
            note=f"The first {_panels.EXAMPLES}; rows are counted from 0.",
        )


def mark_exact(digests: Any, original: Any) -> int:
    """Note in original, for each row equal to an earlier one, the first such row; their number."""
    first: dict[bytes, int] = {}
    count = 0
    for row, digest in enumerate(digests):
        at = first.setdefault(digest.tobytes(), row)
        if at != row:
            original[row] = at
            count += 1
    return count


def mark_near(signatures: Any, threshold: float, original: Any, run: Run) -> int:
    """The same for rows whose signatures agree in at least threshold of their places.

    Rows are looked at in order and compared with kept ones that share a band, so the outcome does
    not depend on how the rows were spread over shards.
    """
    import numpy

    num_perm = signatures.shape[1]
    width = band_width(num_perm, threshold)
    bands = num_perm // width
    groups = numpy.zeros((len(signatures), bands), dtype=numpy.int64)
    shared = numpy.zeros((len(signatures), bands), dtype=bool)
    for band in range(bands):
        part = numpy.ascontiguousarray(signatures[:, band * width : (band + 1) * width])
        keys = part.view(numpy.dtype((numpy.void, part.dtype.itemsize * width))).ravel()
        _, group, sizes = numpy.unique(keys, return_inverse=True, return_counts=True)
        groups[:, band] = group
        shared[:, band] = sizes[group] > 1
        run.report(step=band + 1, of=bands, note="comparing signatures")

    kept: dict[tuple[int, int], list[int]] = {}
    count = 0
    for row in numpy.flatnonzero(shared.any(axis=1) & (original < 0)).tolist():
        places = [(band, int(groups[row, band])) for band in numpy.flatnonzero(shared[row]).tolist()]
        candidates = sorted({r for place in places for r in kept.get(place, ())})
        if candidates:
            alike = (signatures[candidates] == signatures[row]).mean(axis=1) >= threshold
            if alike.any():
                original[row] = candidates[int(alike.argmax())]
                count += 1
                continue
        for place in places:
            kept.setdefault(place, []).append(row)
    return count


def band_width(num_perm: int, threshold: float) -> int:
    """Signature places per band: the widest by which two rows just at the threshold are still found.

    They share a band with probability 1 - (1 - threshold^width)^bands; 99 % is asked for.
    """
    for width in range(num_perm, 1, -1):
        if 1 - (1 - threshold**width) ** (num_perm // width) >= 0.99:
            return width
    return 1
