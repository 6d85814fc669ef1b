"""What the stages show of themselves in the report beside a receipt; evidence only, so in no key."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mxt.rule import Run

# all stages that take rows away write into this one table
DATA = "Data"
DROPPED = "What was dropped, and why"
EXAMPLES = 5
SHOWN = 160  # characters of a text


def dropped(run: Run, stage: str, counts: Mapping[str, int]) -> None:
    """Rows by what became of them; shards add up to one table, the stages stand below each other."""
    rows = [[stage, what, count] for what, count in counts.items()]
    run.panel("table", DROPPED, section=DATA, columns=["stage", "what", "rows"], rows=rows, add_up=True)


def curves(run: Run, section: str, lines: Sequence[Mapping[str, Any]]) -> None:
    """Loss, learning rate and speed by step, of what metrics.jsonl holds."""
    for key, title, unit in (
        ("loss", "Loss", "mean cross-entropy of a token, nats"),
        ("lr", "Learning rate", ""),
        ("tokens_per_s", "Speed", "tokens a second"),
        ("grad_norm", "Gradient norm before clipping", ""),
    ):
        values = [line.get(key) for line in lines]
        if any(value is not None for value in values):
            run.panel(
                "lines",
                title,
                section=section,
                x=[line["step"] for line in lines],
                series={title.lower(): values},
                x_label="step",
                y_label=unit,
                zero=key == "tokens_per_s",  # a speed that varies by a tenth must not look like a saw
            )


def mean_and_error(scores: Sequence[float]) -> tuple[float, float | None]:
    """The mean, and its standard error (None for fewer than two rows)."""
    count = len(scores)
    mean = math.fsum(scores) / count
    if count < 2:
        return mean, None
    return mean, math.sqrt(math.fsum((s - mean) ** 2 for s in scores) / (count - 1) / count)


def scores_of(results: Mapping[str, Any]) -> dict[tuple[str, str], list[float]]:
    """(task, metric) -> the scores of its rows, of what evaluate wrote."""
    found: dict[tuple[str, str], list[float]] = {}
    for task, result in results["tasks"].items():
        for sample in result["samples"]:
            for metric, score in sample["scores"].items():
                found.setdefault((task, metric), []).append(score)
    return found


def evaluation(run: Run, results: Mapping[str, Any]) -> None:
    """Scores of one model, and a few of its rows."""
    table = []
    for (task, metric), scores in scores_of(results).items():
        mean, error = mean_and_error(scores)
        table.append([task, metric, mean, error, len(scores)])
    if table:
        columns = ["task", "metric", "mean", "standard error", "rows"]
        run.panel("table", "Scores", section="Evaluation", columns=columns, rows=table)


def comparison(run: Run, base: Mapping[str, Any], tuned: Mapping[str, Any]) -> None:
    """Base against tuned on every task, and rows on which they differ."""
    before, after = scores_of(base), scores_of(tuned)
    both = [key for key in before if len(after.get(key, ())) == len(before[key])]
    bars, table = [], []
    for key in both:
        (low, low_error), (high, high_error) = mean_and_error(before[key]), mean_and_error(after[key])
        gains = [b - a for a, b in zip(before[key], after[key], strict=True)]
        gain, error = mean_and_error(gains)
        name = " ".join(key)
        bars += [
            {"group": name, "name": "base", "value": low, "error": low_error},
            {"group": name, "name": "tuned", "value": high, "error": high_error, "marked": True},
        ]
        table.append([*key, low, high, gain, error, len(gains)])
    if not both:
        return
    run.panel(
        "bars",
        "Base against tuned",
        section="Evaluation",
        bars=bars,
        unit="mean score",
        note="Whiskers are one standard error of each mean.",
    )
    run.panel(
        "table",
        "Every metric",
        section="Evaluation",
        columns=["task", "metric", "base", "tuned", "difference", "its standard error", "rows"],
        rows=table,
        note="Both models answered the same rows: the error is that of the mean difference of pairs.",
    )
    changed = _changed(base, tuned)
    if changed:
        run.panel(
            "table",
            "Rows that changed",
            section="Evaluation",
            columns=["row", "right answer", "metric", "base", "tuned"],
            rows=changed,
            note=f"The first {EXAMPLES} that became better and the first {EXAMPLES} that became worse.",
        )


def _changed(base: Mapping[str, Any], tuned: Mapping[str, Any]) -> list[list[Any]]:
    better: list[list[Any]] = []
    worse: list[list[Any]] = []
    for task, result in base["tasks"].items():
        others = {s["id"]: s for s in tuned["tasks"].get(task, {}).get("samples", ())}
        higher = result.get("higher_is_better") or {}
        for sample in result["samples"]:
            other = others.get(sample["id"])
            if other is None or not sample["scores"]:
                continue
            metric, score = next(iter(sample["scores"].items()))
            gain = other["scores"].get(metric, score) - score
            if higher.get(metric.partition(",")[0]) is False:
                gain = -gain
            place = better if gain > 0 else worse
            if gain and len(place) < EXAMPLES:
                text = short(" / ".join(sample["texts"]))
                answer = short(sample.get("answer") or "")
                place.append([text, answer, metric, score, other["scores"].get(metric)])
    return better + worse


def short(text: str) -> str:
    """One line, cut."""
    line = " ".join(text.split())
    return line if len(line) <= SHOWN else f"{line[: SHOWN - 1]}…"


def facts(run: Run, section: str, title: str, pairs: Iterable[tuple[str, Any]], note: str = "") -> None:
    """Those that are known."""
    known = [[name, value] for name, value in pairs if value is not None and value != ""]
    if known:
        run.panel("facts", title, section=section, facts=known, note=note)
