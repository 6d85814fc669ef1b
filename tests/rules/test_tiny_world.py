"""The tiny recipes' data: made by the committed script, and held-out questions that share nothing with it."""

from __future__ import annotations

import importlib.util
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rules._overlap import HeldOut, shared_rows

TINY = Path(__file__).resolve().parents[2] / "recipes/tiny"


def lines(pattern: str) -> list[dict[str, Any]]:
    return [json.loads(x) for p in sorted(TINY.glob(pattern)) for x in p.read_text().splitlines()]


@pytest.fixture(scope="module")
def questions() -> list[dict[str, Any]]:
    return lines("talo.jsonl")


@pytest.fixture(scope="module")
def rows() -> list[list[str]]:
    """[prompt, answer] of each training row."""
    return [[m["content"] for m in r["messages"]] for r in lines("train-*.jsonl")]


def test_the_committed_files_are_what_the_script_makes() -> None:
    spec = importlib.util.spec_from_file_location("make_data", TINY / "make_data.py")
    assert spec
    assert spec.loader
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    made = script.make()
    assert made.keys() == {p.name for p in TINY.iterdir() if p.suffix in (".txt", ".jsonl")}
    for name, text in made.items():
        assert (TINY / name).read_text() == text, name


def test_no_question_or_answer_is_a_training_row(
    questions: list[dict[str, Any]], rows: list[list[str]]
) -> None:
    assert len({q["question"] for q in questions}) == len(questions) >= 200
    prompts, answers = ({normal(r[i]) for r in rows} for i in (0, 1))
    for q in questions:
        assert normal(q["question"]) not in prompts
        assert not answers & {normal(c) for c in q["choices"]}


def test_no_pair_of_words_in_a_question_was_translated_before(
    questions: list[dict[str, Any]], rows: list[list[str]]
) -> None:
    """Not even a part of an answer can be remembered as a whole."""
    corpus = (TINY / "corpus.txt").read_text()
    translated = [
        d for d in corpus.split("\n\n") if len(re.findall(r"\b[a-z]+n [a-z]+i\b", d)) and "he " in d
    ]
    assert len(translated) > 1000
    seen = {p for text in [*translated, *(r[0] for r in rows)] for p in pairs(text)}
    asked = {p for q in questions for p in pairs(q["question"])}
    assert len(asked) > 30
    assert not asked & seen


def test_no_question_and_no_answer_is_in_the_corpus(questions: list[dict[str, Any]]) -> None:
    corpus = (TINY / "corpus.txt").read_text().lower()
    for q in questions:
        assert q["question"].removeprefix("Say in Talo: ").lower() not in corpus
        assert q["choices"][q["label"]].lower() not in corpus


def test_a_guess_is_right_once_in_four_times(questions: list[dict[str, Any]]) -> None:
    """Each word of the right answer stands in half of the four choices or in all."""
    for q in questions:
        assert len(set(q["choices"])) == 4
        choices = [c.split() for c in q["choices"]]
        for i, word in enumerate(choices[q["label"]]):
            assert sum(c[i] == word for c in choices) in (2, 4)
    labels = Counter(q["label"] for q in questions)
    assert min(labels.values()) > len(questions) / 8


def test_old_talo_is_asked_about_and_never_told() -> None:
    """Its pairs of words stand in no story, nothing of the dialect in the corpus, and one choice is right."""
    stories = [r["text"] for r in lines("old-talo-text.jsonl")]
    questions = lines("old_talo.jsonl")
    assert len({q["text"] for q in questions}) == len(questions) >= 200
    told = {tuple(normal(s).split()) for story in stories for s in story.split(".") if s.strip()}
    assert {len(s) for s in told} == {8}  # noun adjective bo verb bo noun adjective ke
    kind = {word: small for s in told for word, small in ((s[0], s[2]), (s[0], s[4]), (s[5], s[7]))}
    assert all(kind[s[0]] == s[2] == s[4] and kind[s[5]] == s[7] for s in told)
    pairs_told = {p for s in told for p in ((s[0], s[1]), (s[5], s[6]))}
    corpus = (TINY / "corpus.txt").read_text()
    assert not re.search(r"\b(bo|ke|lu)\b", corpus)
    for q in questions:
        choices = [normal(c).split() for c in q["choices"]]
        right = [c for c in choices if kind[c[0]] == c[2] == c[4] and kind[c[5]] == c[7]]
        assert right == [choices[q["label"]]]
        assert len({tuple(c) for c in choices}) == 4
        for s in (normal(q["text"]).split(), right[0]):
            assert not pairs_told & {(s[0], s[1]), (s[5], s[6])}
    assert min(Counter(q["label"] for q in questions).values()) > len(questions) / 8


def test_a_question_about_old_talo_that_stood_in_a_story_would_be_found() -> None:
    """The gate's search, in rows of plain text."""
    questions = lines("old_talo.jsonl")
    held_out = [HeldOut([q["text"]], q["choices"][q["label"]]) for q in questions]
    stories = [r["text"] for r in lines("old-talo-text.jsonl")]
    assert shared_rows(held_out, stories) == {}
    stories[9] += f" {questions[7]['text'].upper()} {stories[3]}"
    assert shared_rows(held_out, stories) == {7: 9}


def normal(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))


def pairs(text: str) -> set[str]:
    """Adjective and noun behind each English article."""
    return set(re.findall(r"\bthe (\w+ \w+)\b", text.lower()))
