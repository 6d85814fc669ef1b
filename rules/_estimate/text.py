"""How much text the training rows hold: counted in files that are here, known of a few datasets elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mxt.estimates import Range

SAMPLE = 400  # rows of a file that are looked into
WHOLE = 4 << 20  # bytes up to which a file is read whole
SAMPLING = Range(0.93, 1.07)  # of text a row, where rows were sampled


class Text(NamedTuple):
    """rows: of the data. text: bytes of them that are tokenized. turns: messages, each with its frame.
    plain: the part of the text's bytes that is ASCII. download: bytes, 0 for local files. how: it is known.
    """

    rows: Range
    text: Range
    turns: Range
    plain: float
    download: float
    how: str


class Dataset(NamedTuple):
    """rows, stored: as the dataset's card has them for this split (stored: bytes unpacked).

    share: the part of those bytes that is tokenized: other columns repeat text. turns: messages a row.
    tokens: where the card counts them. download: bytes of the files, where known.
    """

    rows: int
    stored: float
    share: Range
    turns: Range
    download: float = 0
    tokens: Range | None = None


# By repository and the beginning of the files' names. UltraChat's and UltraFeedback's figures were read from
# their cards on the Hub in November 2026; the others are those commonly cited. What part of the bytes is
# tokenized is reckoned from their columns.
DATASETS: dict[tuple[str, str], Dataset] = {
    # prompt repeats the first message, prompt_id is a hash
    ("HuggingFaceH4/ultrachat_200k", "data/train_sft"): Dataset(
        207_865, 1_397_058_554, Range(0.78, 0.95), Range(5, 8)
    ),
    # prompt and messages repeat what chosen and rejected hold
    ("HuggingFaceH4/ultrafeedback_binarized", "data/train_prefs"): Dataset(
        61_135, 405_688_662, Range(0.5, 0.68), Range(4, 4)
    ),
    # text repeats the other three under a preamble
    ("tatsu-lab/alpaca", "data/train"): Dataset(
        52_002, 46_208_623, Range(0.3, 0.45), Range(2, 2), 24_246_638
    ),
    # solutions are what answers are checked against
    ("openai/gsm8k", "main/train"): Dataset(7_473, 3_963_202, Range(0.4, 0.6), Range(1, 1)),
    # one file of conversations about pictures; bytes are rounded
    ("liuhaotian/LLaVA-Instruct-150K", "llava_instruct_150k"): Dataset(
        157_712, 229e6, Range(0.7, 0.9), Range(2, 10)
    ),
    # a sample drawn to hold 10 billion GPT-2 tokens; rows and bytes are rounded
    ("HuggingFaceFW/fineweb-edu", "sample/10BT"): Dataset(
        9_670_000, 48e9, Range(0.85, 1.0), Range(0, 0), tokens=Range(9.3e9, 10.7e9)
    ),
}


def known_dataset(repo: str, files: Sequence[str]) -> Dataset | None:
    """The entry for these files; None where one of them is of another split."""
    found = {DATASETS.get((repo, p)) for f in files for r, p in DATASETS if r == repo and f.startswith(p)}
    matched = all(any(r == repo and f.startswith(p) for r, p in DATASETS) for f in files)
    return found.pop() if matched and len(found) == 1 else None


def count_files(files: Iterable[Path]) -> Text | None:
    """Rows counted, text sampled; None without files, or with one that cannot be read."""
    found = [_count(path) for path in files]
    known = [t for t in found if t is not None]
    if not known or len(known) < len(found):
        return None
    exact = all(t.text.low == t.text.high for t in known)
    total = Range.exactly(0)
    rows, text, turns = total, total, total
    for t in known:
        rows, text, turns = rows.plus(t.rows), text.plus(t.text), turns.plus(t.turns)
    plain = sum(t.plain * t.text.high for t in known) / max(text.high, 1)
    return Text(rows, text, turns, plain, 0, "counted" if exact else "rows counted, their text sampled")


def _count(path: Path) -> Text | None:
    try:
        return _count_parquet(path) if path.suffix == ".parquet" else _count_lines(path)
    except (OSError, ValueError, ImportError):
        return None


def _count_lines(path: Path) -> Text | None:
    size = path.stat().st_size
    with path.open("rb") as file:
        if path.suffix == ".json" and file.read(64).lstrip()[:1] == b"[":
            if size > WHOLE:
                return None
            file.seek(0)
            return _measure(json.loads(file.read()), None)
        file.seek(0)
        if size <= WHOLE:
            lines = [line for line in file.read().splitlines() if line.strip()]
            return _measure([json.loads(line) for line in lines], None)
        count = sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(1 << 22), b""))
        rows = []
        for part in range(8):
            file.seek(size * part // 8)
            if part:
                file.readline()
            rows += [
                json.loads(line) for line in (file.readline() for _ in range(SAMPLE // 8)) if line.strip()
            ]
    return _measure(rows, count)


def _count_parquet(path: Path) -> Text | None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            batch = next(file.iter_batches(SAMPLE), None)
            rows = [] if batch is None else batch.to_pylist()
            return _measure(rows, file.metadata.num_rows)
    except pa.ArrowException:
        return None


def _measure(sample: Sequence[Any], rows: int | None) -> Text:
    """rows: how many there are, if the sample is not all of them."""
    texts = [list(texts_of(row)) for row in sample if isinstance(row, Mapping)]
    bytes_ = sum(len(t.encode("utf-8", "replace")) for row in texts for t in row)
    letters = sum(t.isascii() * len(t) or sum(map(str.isascii, t)) for row in texts for t in row)
    count = len(texts) if rows is None else rows
    scale = count / max(len(texts), 1)
    text, turns = Range.exactly(bytes_ * scale), Range.exactly(sum(map(len, texts)) * scale)
    if rows is not None and rows > len(texts):
        text, turns = text.times(SAMPLING), turns.times(SAMPLING)
    return Text(Range.exactly(count), text, turns, letters / max(bytes_, 1), 0, "")


def texts_of(row: Mapping[str, Any]) -> Iterable[str]:
    """What of a row is tokenized, by its columns: conversations, preferences, instructions, plain text."""
    if "chosen" in row and "rejected" in row:
        for side in ("chosen", "rejected"):
            if isinstance(row[side], str):
                yield from _strings(row.get("prompt"))
            yield from _strings(row[side])
        return
    for names in (
        ("messages",),
        ("conversations",),
        ("instruction", "input", "output"),
        ("prompt", "completion"),
        ("text",),
        ("question", "answer"),
    ):
        if names[0] in row:
            for name in names:
                yield from _strings(row.get(name))
            return


def _strings(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        if value:
            yield value
    elif isinstance(value, Mapping):
        yield from _strings(value.get("content", value.get("value")))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _strings(item)


def bytes_per_token(vocab: int, plain: float) -> Range:
    """Of text that is ASCII by that part. A large vocabulary joins more letters; other scripts are split."""
    if vocab >= 100_000:
        english = Range(3.4, 5.0)
    elif vocab >= 30_000:
        english = Range(3.0, 4.7)
    elif vocab >= 400:  # made for their corpus
        english = Range(2.0, 5.5)
    else:  # hardly more than the 256 bytes
        english = Range(1.0, 2.5)
    other = Range(1.2, 3.2)
    return Range(
        english.low * plain + other.low * (1 - plain), english.high * plain + other.high * (1 - plain)
    )


def tokens_per_frame(vocab: int) -> Range:
    """Of what a chat template puts around a turn: marks, the role's name, line breaks."""
    if vocab >= 30_000:
        return Range(4, 7)
    return Range(4, 9) if vocab >= 400 else Range(7, 16)  # which spells the role's name
