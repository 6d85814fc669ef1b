"""Finds held-out rows whose content is also in the training rows, whatever their case, spacing, punctuation.

A held-out row is shared when one training row (all its messages together) holds, word for word,
  - half of the runs of RUN words of one of its texts, or the whole of a text that is no longer; or
  - its right answer, and half of the runs of three words of its texts (most of them, where the
    answer is so short that it may stand there by chance).
How most held-out rows begin or end, and texts that most have in common, are an instruction: it
tells nothing, unless a row has nothing else. Of a row with only short texts all of them together
count, with the answer. Held-out rows that are equal count as one. A text told in other words is
not found.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from mxt.rule import StageError

MIN_WORDS = 4  # a text of fewer may stand anywhere by chance
RUN = 8
SHORT_RUN = 3
SOME, MOST = 0.5, 0.8

Words = tuple[str, ...]
# scripts that put no space between words count by the character
_ONE = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
# an operator between numbers or letters: what a sum is about, and no dash, bullet or emphasis
_SIGN = r"[-+*/%^=<>&|\u00d7\u00f7\u2212\u2264\u2265]{1,2}"
_OPERATOR = rf"(?:(?<=[\d)])|(?<=\b[a-z])){_SIGN}(?=[\d(]|[a-z]\b)"
_SPACED = rf"(?:(?<=[\d)]\s)|(?<=\b[a-z]\s)){_SIGN}(?=\s(?:[\d(]|[a-z]\b))"
_WORD = re.compile(rf"[{_ONE}]|[^\W{_ONE}]+|{_OPERATOR}|{_SPACED}")


class HeldOut(NamedTuple):
    """A row to be judged on. texts: what is asked. answer: the right one, "" where none is known."""

    texts: Sequence[str]
    answer: str = ""


class Clue(NamedTuple):
    """A row is shared where need of the runs, and the answer, stand in one training row."""

    row: int
    runs: tuple[Words, ...]
    need: int
    answer: Words


def words_of(text: str) -> Words:
    """Lower-case words and operators, compatibility forms of characters made equal."""
    return tuple(_WORD.findall(unicodedata.normalize("NFKC", text).casefold()))


def distinct_rows(held_out: Sequence[HeldOut]) -> list[list[int]]:
    """Row numbers in groups: rows that ask the same and have the same answer are one row."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for number, row in enumerate(held_out):
        identity = (tuple(words_of(t) for t in row.texts), words_of(row.answer))
        groups.setdefault(identity, []).append(number)
    return list(groups.values())


def clues(held_out: Sequence[HeldOut]) -> list[list[Clue]]:
    """For each row what would show that it is shared; nothing for a row that cannot be recognised."""
    normal = [[w for t in row.texts if (w := words_of(t))] for row in held_out]
    groups = distinct_rows(held_out)
    firsts = [normal[g[0]] for g in groups]
    begins = _common(firsts)
    ends = _common([[w[::-1] for w in texts] for texts in firsts])
    out = []
    for number, row in enumerate(held_out):
        answer = words_of(row.answer)
        telling = [c for w in normal[number] if (c := _content(w, begins, ends))]
        out.append(_clues_of(number, normal[number], telling, answer))
    return out


def _clues_of(number: int, texts: list[Words], telling: list[Words], answer: Words) -> list[Clue]:
    long = [w for w in dict.fromkeys(telling) if len(w) >= MIN_WORDS]
    found = []
    for words in long:
        runs = _runs(words, RUN)
        found.append(Clue(number, runs, math.ceil(SOME * len(runs)), ()))
    if long and answer:
        runs = tuple(dict.fromkeys(run for words in long for run in _runs(words, SHORT_RUN)))
        share = SOME if len(answer) >= MIN_WORDS else MOST
        found.append(Clue(number, runs, math.ceil(share * len(runs)), answer))
    if found:
        return found
    whole = tuple(word for words in telling or texts for word in words)
    if whole:  # an instruction, or a few words: only with the answer are they this row
        runs = _runs(whole, RUN)
        return [Clue(number, runs, len(runs), answer)]
    return [Clue(number, (answer,), 1, ())] if len(answer) >= MIN_WORDS else []


def _common(rows: Sequence[Sequence[Words]]) -> set[Words]:
    """The beginnings that more than half of the rows have in one of their texts."""
    if len(rows) <= 2:
        return set()
    common: set[Words] = {()}
    length = 0
    while True:  # each length only where the one before was common
        length += 1
        count = Counter(
            w
            for texts in rows
            for w in {t[:length] for t in texts if len(t) >= length and t[: length - 1] in common}
        )
        longer = {w for w, n in count.items() if n > len(rows) / 2}
        if not longer:
            return common
        common |= longer


def _content(words: Words, begins: set[Words], ends: set[Words]) -> Words:
    """A text without what most rows have there; nothing of one that most have, all of one too short."""
    if words in begins:
        return ()
    start = end = 0
    while words[: start + 1] in begins:
        start += 1
    while words[::-1][: end + 1] in ends:
        end += 1
    return words[start : len(words) - end] if len(words) - start - end >= MIN_WORDS else words


def _runs(words: Words, length: int) -> tuple[Words, ...]:
    """The different runs of that many words; the whole of a text that is no longer."""
    return tuple(dict.fromkeys(words[i : i + length] for i in range(max(1, len(words) - length + 1))))


def shared_rows(held_out: Sequence[HeldOut], training: Iterable[str]) -> dict[int, int]:
    """Held-out row number -> number of the first training text that holds it."""
    every = clues(held_out)
    of_run = Counter(run for row in every for clue in row for run in clue.runs)
    waiting: dict[Words, list[Clue]] = {}
    for clue in (c for row in every for c in row):
        # where need of n runs are found, so is one of any n - need + 1: look for the rarest of them
        rare = sorted(clue.runs, key=lambda run: (of_run[run], run))
        for run in rare[: len(rare) - clue.need + 1]:
            waiting.setdefault(run, []).append(clue)
    lengths: dict[str, set[int]] = {}
    for run in waiting:
        lengths.setdefault(run[0], set()).add(len(run))
    found: dict[int, int] = {}
    for number, text in enumerate(training):
        words = words_of(text)
        seen: set[Words] = set()
        for start, word in enumerate(words):
            for length in lengths.get(word, ()):
                seen.add(words[start : start + length])
        padded = ""
        for run in seen & waiting.keys():
            padded = padded or _padded(words)
            for clue in waiting[run]:
                if clue.row not in found and _stands_in(clue, padded):
                    found[clue.row] = number
    return found


def _padded(words: Words) -> str:
    return f" {' '.join(words)} "


def _stands_in(clue: Clue, padded: str) -> bool:
    if clue.answer and _padded(clue.answer) not in padded:
        return False
    return sum(_padded(run) in padded for run in clue.runs) >= clue.need


def training_texts(shards: Sequence[Path], keeps: Sequence[Path]) -> Iterator[str]:
    """The whole text of each row that is trained on, its messages together.

    shards: rows.jsonl files. keeps: for each the list of kept row numbers; none: all are kept.
    Raises StageError for files that are no output of those stages.
    """
    for i, shard in enumerate(shards):
        kept: set[int] | None = None
        if keeps:
            form = json.loads(keeps[i].read_text())
            kept = set(form["keep"] if isinstance(form, dict) else form)
        with shard.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines):
                if kept is not None and number not in kept:
                    continue
                row = json.loads(line)
                if "messages" in row:
                    yield "\n".join(m["content"] for m in row["messages"])
                elif "text" in row:
                    yield row["text"]
                else:
                    raise StageError(
                        "training row has neither 'messages' nor 'text'", where=f"{shard.name}:{number + 1}"
                    )
