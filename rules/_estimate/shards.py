"""The rows: how many, and how much text."""

from __future__ import annotations

from mxt.estimates import Asked, Estimate, Figure, Range
from rules._estimate.text import Text, count_files, known_dataset


def estimate(asked: Asked) -> Estimate:
    data = asked.recipe["data"]
    if data["hub"] is None:
        found = count_files([p for label in asked.attrs.files for p in asked.files(label)])
        if found is None:
            return Estimate(unknown=["rows: a file of data.files is not here yet, or cannot be read"])
        tokens = None
    else:
        repo = data["hub"]["repo"]
        known = known_dataset(repo, data["hub"]["files"])
        if known is None:
            return Estimate(
                unknown=[f"rows: {repo} is not among the datasets whose size is known before a download"]
            )
        text = Range.exactly(known.stored).times(known.share)
        turns = known.turns.times(known.rows)
        found = Text(Range.exactly(known.rows), text, turns, 0.99, known.download, "known of the dataset")
        tokens = known.tokens
    limit = data["limit"]
    if limit is not None and limit < found.rows.high:
        part = limit / found.rows.high
        found = found._replace(
            rows=Range.exactly(limit), text=found.text.times(part), turns=found.turns.times(part)
        )
        tokens = tokens and tokens.times(part)
    note = found.how + (", then data.limit" if limit is not None and limit == found.rows.high else "")
    figures = [
        Figure("rows", found.rows.high, note=note),
        Figure("text", found.text, "bytes", "what is tokenized of them"),
    ]
    return Estimate(figures, facts={"text": found, "tokens": tokens})
