"""The training tokens: text over bytes a token, and the frames that a chat template puts around each turn."""

from __future__ import annotations

import math

from mxt.estimates import Asked, Estimate, Figure, Range
from rules._estimate.sizes import shape_of
from rules._estimate.text import bytes_per_token, tokens_per_frame
from rules._estimate.together import inverse, product

FILL = Range(0.85, 1.0)  # of sequences, by best-fit decreasing; the tiny recipes measured 0.88
# what dedupe leaves, by the coarsest search that is asked for: assumed, as it depends on the data alone
KEPT = {"exact": 0.97, "minhash": 0.9, "semdedup": 0.75}


def estimate(asked: Asked) -> Estimate:
    data = asked.recipe["data"]
    rows = asked.of(asked.attrs.shards)
    text = rows and rows.facts.get("text")
    if data["format"] == "images":
        return Estimate(unknown=["tokens: those of pictures depend on their sizes"])
    if not rows or not text:
        return Estimate(unknown=["tokens: the rows are not known before they are here"])
    shape = shape_of(asked.recipe["model"], asked.package)
    vocab = shape.vocab if shape else 100_000
    each, frame = bytes_per_token(vocab, text.plain), tokens_per_frame(vocab)
    longest = data["pack"]["max_length"]
    tokens = rows.facts["tokens"] or product(text.text, inverse(each)).plus(product(text.turns, frame))
    notes, figures = [], []
    kept = 1.0
    if data["dedupe"] is not None:
        coarsest = next((k for k in ("semdedup", "minhash") if data["dedupe"][k] is not None), "exact")
        kept = KEPT[coarsest]
        notes.append(
            f"dedupe is assumed to keep {kept * 100:.0f} to 100 % of the rows; only the data can tell"
        )
    if data["pack"]["overlong"] in ("truncate", "drop"):  # the tail of long rows is lost
        most = text.rows.high * longest * (2 if data["format"] == "preference" else 1)
        tokens = Range(min(tokens.low, most), min(tokens.high, most))
    tokens = product(tokens, Range(kept, 1.0))
    if rows.facts["tokens"] is None:
        frames = f"{frame.low:.0f} to {frame.high:.0f} a turn's frame"
        how = f"{each.low:.1f} to {each.high:.1f} bytes each; {frames}"
    else:
        how = "known of the dataset"
    figures.append(Figure("tokens", tokens, note=how))
    if data["pack"]["strategy"] == "bfd":
        sequences = product(tokens.over(longest), inverse(FILL))
        figures.append(Figure("sequences", sequences, note=f"of {longest}, filled to 85 to 100 %"))
    else:
        sequences = text.rows.times(Range(kept, 1.0))
        figures.append(Figure("sequences", sequences, note="one a row"))
    sequences = Range(math.ceil(sequences.low), math.ceil(sequences.high))
    documents = text.rows.times(Range(kept, 1.0))
    return Estimate(
        figures,
        notes=notes,
        facts={
            "tokens": tokens,
            "sequences": sequences,
            "documents": documents,
            "packed": data["pack"]["strategy"] == "bfd",
        },
    )
