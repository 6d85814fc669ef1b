"""The tiny recipes' data: made by the committed script, and held-out questions that share nothing with it."""

from __future__ import annotations

import importlib.util
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

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
    for name, text in script.make().items():
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


def normal(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))


def pairs(text: str) -> set[str]:
    """Adjective and noun behind each English article."""
    return set(re.findall(r"\bthe (\w+ \w+)\b", text.lower()))
