"""Repeated rows: the first stays, wherever the rows lie; nearly equal ones by estimated similarity."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import numpy
import pytest

from rules.dedupe import band_width
from rules.shards import shingles
from tests.rules.data_run import Shard, chat, keep

RNG = random.Random(5)
WORDS = ["".join(RNG.choices("abcdefghij", k=5)) for _ in range(400)]


def sentence(rng: random.Random, words: int) -> str:
    return " ".join(rng.choices(WORDS, k=words))


def read(tmp_path: Path, *shards: list[dict[str, Any]]) -> list[Shard]:
    made = []
    for i, rows in enumerate(shards):
        path = tmp_path / f"{i}.jsonl"
        path.write_text("".join(json.dumps(r) + "\n" for r in rows))
        made.append(Shard(path, tmp_path / f"shard{i}", max_row_bytes=100_000))
    return made


def test_the_first_of_equal_rows_stays_also_across_shards(tmp_path: Path) -> None:
    a, b, c = chat("a one", "x"), chat("b two", "y"), chat("c three", "z")
    kept, report = keep(read(tmp_path, [a, b, a], [c, b, c]), tmp_path / "keep", threshold=None)
    assert kept == [[0, 1], [0]]
    assert report["dropped"] == {"exact": 3, "near": 0}
    assert report["examples"][1] == {"row": "shard 0001 row 1", "repeats": "shard 0000 row 1"}


def test_equal_rows_stay_where_exact_is_off(tmp_path: Path) -> None:
    kept, _ = keep(read(tmp_path, [chat("a one", "x")] * 2), tmp_path / "keep", exact=False, threshold=None)
    assert kept == [[0, 1]]


def test_case_and_punctuation_make_no_new_row(tmp_path: Path) -> None:
    rows = [chat("Say it: the red fox", "vilo ruka"), chat("say it, THE red fox!", "Vilo ruka.")]
    assert keep(read(tmp_path, rows), tmp_path / "keep")[0] == [[0]]
    assert keep(read(tmp_path, rows), tmp_path / "keep", threshold=None)[0] == [[0, 1]]


def test_near_rows_are_found_and_far_ones_are_not(tmp_path: Path) -> None:
    """Pairs well above the threshold all go, pairs well below all stay; true Jaccard is the judge."""
    rng = random.Random(3)
    rows, near = [], set()
    for _ in range(150):
        words = sentence(rng, 120).split()
        changed = list(words)
        for place in rng.sample(range(120), rng.choice([1, 40])):
            changed[place] = rng.choice(WORDS)
        x, y = (set(shingles(chat(" ".join(w), "ok"), 2)) for w in (words, changed))
        alike = len(x & y) / len(x | y)
        assert alike > 0.94 or alike < 0.6
        if alike > 0.94:
            near.add(len(rows) + 1)
        rows += [chat(" ".join(words), "ok"), chat(" ".join(changed), "ok")]
    assert 20 < len(near) < 130
    kept, report = keep(read(tmp_path, rows), tmp_path / "keep", threshold=0.8)
    assert set(range(len(rows))) - set(kept[0]) == near
    assert report["kept"] == len(rows) - len(near)


def test_the_outcome_does_not_depend_on_how_rows_are_spread_over_shards(tmp_path: Path) -> None:
    rng = random.Random(9)
    rows: list[dict[str, Any]] = []
    for _ in range(60):
        text = sentence(rng, 12)
        rows += [chat(text, "x"), *rng.choice([[], [chat(text.upper(), "x")], [chat(text, "x")]])]
    whole, _ = keep(read(tmp_path, rows), tmp_path / "k1")
    (tmp_path / "b").mkdir()
    parts, _ = keep(read(tmp_path / "b", rows[:10], rows[10:50], rows[50:]), tmp_path / "k2")
    starts = (0, 10, 50)
    assert (
        list(itertools.chain(*([s + n for n in p] for s, p in zip(starts, parts, strict=True)))) == whole[0]
    )
    assert 60 <= len(whole[0]) < len(rows)


def test_a_limit_takes_the_first_rows_that_are_left_however_they_are_spread(tmp_path: Path) -> None:
    """Rows 1, 3 and 6 repeat earlier ones, so the first five that are left are 0, 2, 4, 5 and 7."""
    texts = ["a a", "a a", "b b", "b b", "c c", "d d", "a a", "e e", "f f", "g g"]
    rows = [chat(text, "x") for text in texts]
    for number, cuts in enumerate([(), (1, 2), (8,), (3, 4, 5, 6, 9)]):
        starts = [0, *cuts]
        folder = tmp_path / str(number)
        folder.mkdir()
        parts = [rows[a:b] for a, b in itertools.pairwise([*starts, len(rows)])]
        kept, report = keep(read(folder, *parts), folder / "keep", limit=5)
        assert [s + n for s, part in zip(starts, kept, strict=True) for n in part] == [0, 2, 4, 5, 7]
        assert (report["kept"], report["limit"], report["over_limit"]) == (5, 5, 2)
    assert kept[-1] == []  # a shard beyond the limit


def test_a_limit_without_dedupe_counts_copies_too(tmp_path: Path) -> None:
    shards = read(tmp_path, [chat("a a", "x")] * 3, [chat("a a", "x")] * 3)
    kept, report = keep(shards, tmp_path / "keep", exact=None, threshold=None, limit=4)
    assert kept == [[0, 1, 2], [0]]
    assert (report["dropped"], report["over_limit"]) == ({"exact": 0, "near": 0}, 2)
    panels = json.loads((tmp_path / "keep/evidence/panels.json").read_text())
    assert [p["rows"] for p in panels] == [[["dedupe", "beyond the first 4 (data.limit)", 2]]]


def test_a_limit_above_what_is_there_takes_all(tmp_path: Path) -> None:
    kept, report = keep(read(tmp_path, [chat("a a", "x"), chat("b b", "x")]), tmp_path / "keep", limit=3)
    assert kept == [[0, 1]]
    assert (report["kept"], report["over_limit"]) == (2, 0)


def test_rows_without_words_are_no_defect(tmp_path: Path) -> None:
    assert keep(read(tmp_path, [chat("?", "!"), chat("...", "-")]), tmp_path / "keep")[0] == [[0]]


def test_an_empty_shard_keeps_nothing(tmp_path: Path) -> None:
    shards = read(tmp_path, [chat("a", "b")], [chat("c", "d")])
    numpy.save(shards[0].outputs["signatures"], numpy.load(shards[0].outputs["signatures"])[:0])
    assert keep(shards, tmp_path / "keep")[0] == [[], [0]]


@pytest.mark.parametrize("num_perm", [16, 64, 128, 256])
@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.8, 0.95, 1.0])
def test_bands_find_rows_at_the_threshold(num_perm: int, threshold: float) -> None:
    width = band_width(num_perm, threshold)
    found = 1 - (1 - threshold**width) ** (num_perm // width)
    assert found >= 0.99 or width == 1
