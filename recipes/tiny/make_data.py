"""Writes the tiny recipes' corpus, training rows and held-out questions, in a small made-up language.

    python recipes/tiny/make_data.py

Talo has one word for each English word and puts adjectives behind nouns: "the red fox sees the small owl"
is "FOX RED SEES OWL SMALL"; it is written without capitals. A base model learns both languages, and
how they belong together, from the corpus. The training rows teach it to answer "Say in Talo: ...".
The held-out questions use pairs of adjective and noun that occur together in no training row and no
translation in the corpus, so no answer can be remembered: it has to be put together.

tiny_cpt reads Old Talo, of which the corpus holds nothing: the same words, and behind each adjective and each
verb a small word that agrees with the noun that it belongs to. Which noun takes which has to be learned by
heart. Its training rows are plain stories, some longer than a training sequence. A held-out question
is a story's first sentence and four ways to go on, of which one agrees throughout; again its pairs of words
stand together in no training row.

All text is made here and given to the public domain (CC0 1.0).
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
DOCUMENTS = 3600
SENTENCE_ROWS = 1200
SHARDS = 3
QUESTIONS = 240
STORIES = 400

NOUNS = [
    "fox",
    "owl",
    "cat",
    "dog",
    "horse",
    "bird",
    "fish",
    "mouse",
    "bear",
    "frog",
    "goat",
    "duck",
    "tree",
    "stone",
    "river",
    "house",
]
ADJECTIVES = ["red", "blue", "green", "white", "small", "big", "old", "young", "warm", "quiet"]
VERBS = ["sees", "finds", "likes", "follows", "hears", "needs", "carries", "knows"]
SLOTS = (ADJECTIVES, NOUNS, VERBS, ADJECTIVES, NOUNS)

TRANSLATIONS = (
    "English: {e}.\nTalo:\n{t}.",
    "{E}.\n{t}.",
    "In English, {e}. In Talo, {t}.",
    "{E}. In Talo: {t}.",
    "We say: {e}.\nThey say: {t}.",
    "Teacher: {e}.\nPupil:\n{t}.",
)
WORDS = (
    "In Talo, {e} is {t}.",
    "{t} means {e}.",
    "<|im_start|>user\nSay in Talo: {e}.<|im_end|>\n<|im_start|>assistant\n{t}.<|im_end|>",
)


AGREEING = ("bo", "ke", "lu")  # Old Talo's small words


class Sentence(NamedTuple):
    """The five words of "the red fox sees the small owl", in English order, without articles."""

    adjective: str
    noun: str
    verb: str
    object_adjective: str
    object_noun: str


def lexicon(rng: random.Random) -> dict[str, str]:
    """A Talo word for each English one; its last letter tells its kind, as -s does in English."""
    syllables = [c + v for c in "bdfgklmnprstvz" for v in "aeiou"]
    words: dict[str, str] = {}
    for kind, ending in ((NOUNS, "n"), (ADJECTIVES, "i"), (VERBS, "s")):
        for english in kind:
            word = ""
            while not word or word in words.values():
                word = rng.choice(syllables) + rng.choice(syllables) + ending
            words[english] = word
    return words


def english(s: Sentence) -> str:
    return f"the {s.adjective} {s.noun} {s.verb} the {s.object_adjective} {s.object_noun}"


def talo(s: Sentence, words: dict[str, str]) -> str:
    order = (s.noun, s.adjective, s.verb, s.object_noun, s.object_adjective)
    return " ".join(words[w] for w in order)


def sentence(pairs: list[tuple[str, str]], rng: random.Random) -> Sentence:
    return Sentence(*rng.choice(pairs), rng.choice(VERBS), *rng.choice(pairs))


def document(
    seen: list[tuple[str, str]], pairs: list[tuple[str, str]], words: dict[str, str], rng: random.Random
) -> str:
    """One document: a translation, a word of the dictionary, or a few sentences in one language."""
    kind = rng.random()
    if kind < 0.8:
        s = sentence(seen, rng)
        e, t = english(s), talo(s, words)
        return rng.choice(TRANSLATIONS).format(e=e, t=t, E=e.capitalize())
    if kind < 0.86:
        e = rng.choice(NOUNS + ADJECTIVES + VERBS)
        return rng.choice(WORDS).format(e=e, t=words[e])
    told = [sentence(pairs, rng) for _ in range(rng.randint(1, 3))]
    texts = [english(s).capitalize() if kind < 0.93 else talo(s, words) for s in told]
    return " ".join(f"{t}." for t in texts)


def row(prompt: str, answer: str) -> dict[str, Any]:
    return {
        "messages": [
            {"role": "user", "content": f"Say in Talo: {prompt}."},
            {"role": "assistant", "content": f"{answer}."},
        ]
    }


def training_rows(
    seen: list[tuple[str, str]], words: dict[str, str], rng: random.Random
) -> list[dict[str, Any]]:
    """Sentences and phrases, and, as in any real data set, some rows twice and some nearly twice."""
    rows = [
        row(english(s), talo(s, words))
        for s in dict.fromkeys(sentence(seen, rng) for _ in range(SENTENCE_ROWS))
    ]
    rows += [row(f"the {a} {n}", f"{words[n]} {words[a]}") for a, n in seen]
    repeated = rng.sample(rows, 24)
    rows += repeated[:16]
    for r in repeated[16:]:
        asked, answered = r["messages"]
        again = {**asked, "content": asked["content"].replace(".", " ...")}
        rows.append({"messages": [again, answered]})
    rng.shuffle(rows)
    return rows


def question(unseen: list[tuple[str, str]], words: dict[str, str], rng: random.Random) -> dict[str, Any]:
    """Four answers: two words each right or wrong, so that a guess is right once in four times."""
    s = sentence(unseen, rng)
    i, j = rng.sample(range(5), 2)
    x = rng.choice([w for w in SLOTS[i] if w != s[i]])
    y = rng.choice([w for w in SLOTS[j] if w != s[j]])
    right = talo(s, words)
    variants: tuple[dict[int, str], ...] = ({}, {i: x}, {j: y}, {i: x, j: y})
    choices = [talo(Sentence(*(v.get(k, w) for k, w in enumerate(s))), words) for v in variants]
    rng.shuffle(choices)
    return {
        "question": f"Say in Talo: {english(s)}.",
        "choices": [f"{c}." for c in choices],
        "label": choices.index(right),
    }


def old_talo(
    seen: list[tuple[str, str]], unseen: list[tuple[str, str]], words: dict[str, str], rng: random.Random
) -> dict[str, str]:
    """Stories from seen pairs of words, questions from unseen ones."""
    kind = {noun: AGREEING[i % 3] for i, noun in enumerate(rng.sample(NOUNS, len(NOUNS)))}

    def tell(s: Sentence, wrong: dict[int, str] | None = None) -> str:
        """wrong: a small word that does not agree, at place 0, 1 or 2."""
        subject, other = kind[s.noun], kind[s.object_noun]
        small = [(wrong or {}).get(i, right) for i, right in enumerate((subject, subject, other))]
        noun, adjective, verb, object_noun, object_adjective = talo(s, words).split()
        return f"{noun} {adjective} {small[0]} {verb} {small[1]} {object_noun} {object_adjective} {small[2]}."

    def asked() -> dict[str, Any]:
        first, s = sentence(unseen, rng), sentence(unseen, rng)
        i, j = rng.sample(range(3), 2)
        right = (kind[s.noun], kind[s.noun], kind[s.object_noun])
        x, y = (rng.choice([a for a in AGREEING if a != right[k]]) for k in (i, j))
        variants: tuple[dict[int, str], ...] = ({}, {i: x}, {j: y}, {i: x, j: y})
        choices = [tell(s, v) for v in variants]
        rng.shuffle(choices)
        return {"text": tell(first), "choices": choices, "label": choices.index(tell(s))}

    lengths = (2, 4, 6, 8, 12, 24)
    stories = [
        {"text": " ".join(tell(sentence(seen, rng)) for _ in range(rng.choice(lengths)))}
        for _ in range(STORIES)
    ]
    questions: dict[str, dict[str, Any]] = {}
    while len(questions) < QUESTIONS:
        q = asked()
        questions[str(q["text"])] = q
    return {"old-talo-text.jsonl": _lines(stories), "old_talo.jsonl": _lines(list(questions.values()))}


def make() -> dict[str, str]:
    """All files by name. The same on every machine."""
    rng = random.Random(2048)
    words = lexicon(rng)
    pairs = [(a, n) for a in ADJECTIVES for n in NOUNS]
    rng.shuffle(pairs)
    unseen, seen = pairs[: len(pairs) // 4], pairs[len(pairs) // 4 :]

    rows = training_rows(seen, words, rng)
    answers = {r["messages"][1]["content"] for r in rows}
    questions: dict[str, dict[str, Any]] = {}
    while len(questions) < QUESTIONS:
        q = question(unseen, words, rng)
        if not answers.intersection(q["choices"]):
            questions[str(q["question"])] = q
    asked = {str(q["question"]).removeprefix("Say in Talo: ").rstrip(".") for q in questions.values()}
    right = {q["choices"][q["label"]].rstrip(".") for q in questions.values()}

    documents: list[str] = []
    while len(documents) < DOCUMENTS:
        text = document(seen, pairs, words, rng)
        sentences = {p.strip().lower() for p in text.split(".")}
        if not sentences & (asked | right):
            documents.append(text)

    files = {"corpus.txt": "\n\n".join(documents) + "\n", "talo.jsonl": _lines(list(questions.values()))}
    files |= old_talo(seen, unseen, words, random.Random(2049))
    for i in range(SHARDS):
        files[f"train-{i:02d}.jsonl"] = _lines(rows[len(rows) * i // SHARDS : len(rows) * (i + 1) // SHARDS])
    return files


def _lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(r) + "\n" for r in rows)


if __name__ == "__main__":
    for name, text in make().items():
        (HERE / name).write_text(text, encoding="utf-8")
        print(f"{name}: {len(text.encode()):,} bytes")
