"""The test of a tuned model: better than its base by more than chance, on rows it was not trained on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mxt.rule import Attributes, Config, Label, Run, StageError, Target

VERSION = 1
TEST = True
KEYED = ("eval.gate.task", "eval.gate.metric", "eval.gate.min_rows", "eval.gate.standard_errors")


class Attrs(Attributes):
    """base, tuned: results of evaluate. shards, keep: the training rows and which of them were kept."""

    config: Config
    base: Label
    tuned: Label
    shards: Label | None = None
    keep: Label | None = None


def actions(target: Target) -> None:
    attrs = target.attrs
    target.action(
        run=gate,
        mnemonic="Gate",
        inputs={
            "base": attrs.base,
            "tuned": attrs.tuned,
            "shards": [h for h in target.outputs(attrs.shards) if h.name == "rows"] if attrs.shards else [],
            "keep": target.outputs(attrs.keep) if attrs.keep else [],
        },
        outputs={"verdict": "verdict.json"},
    )


def gate(run: Run) -> None:
    """verdict.json: {"passed", "summary", "failures", and the numbers}."""
    from rules._overlap import HeldOut, clues, distinct_rows, shared_rows, training_texts

    task, metric = run.config["eval.gate.task"], run.config["eval.gate.metric"]
    base = rows_of(run.inputs["base"], task, metric)
    tuned = rows_of(run.inputs["tuned"], task, metric)
    if [r["key"] for r in base["rows"]] != [r["key"] for r in tuned["rows"]]:
        raise StageError(
            f"base and tuned model were judged on different rows of '{task}'",
            hint="build .eval_base and .eval anew",
        )
    held_out = [HeldOut(r["texts"], r["answer"]) for r in base["rows"]]
    groups = distinct_rows(held_out)  # a copy of a question is no further evidence
    shards: Sequence[Path] = run.inputs["shards"]
    shared = shared_rows(held_out, training_texts(shards, run.inputs["keep"]))
    verdict = decide(
        task=task,
        metric=metric,
        base=means([r["score"] for r in base["rows"]], groups),
        tuned=means([r["score"] for r in tuned["rows"]], groups),
        higher_is_better=base["higher_is_better"],
        copies=len(held_out) - len(groups),
        unknown=sum(not clues_of_row for clues_of_row in clues(held_out)),
        shared=sum(any(row in shared for row in group) for group in groups),
        min_rows=run.config["eval.gate.min_rows"],
        standard_errors=run.config["eval.gate.standard_errors"],
    )
    if not shards:
        verdict = without_training_rows(verdict)
    _write(run.outputs["verdict"], verdict)
    report = [
        {"row": held, **held_out[held]._asdict(), "training_text": text}
        for held, text in sorted(shared.items())
    ]
    _write(run.evidence / "shared_rows.json", report)
    _show(run, verdict, report[:20])


def _show(run: Run, verdict: Mapping[str, Any], shared: Sequence[Mapping[str, Any]]) -> None:
    """The verdict in one sentence, base against tuned, and held-out rows that training has seen."""
    import json

    from rules._panels import comparison, short

    better = verdict["gain"] > 0
    errors = verdict["standard_errors"]
    by = "" if errors is None else f", {abs(errors):.1f} standard errors {'above' if better else 'below'} it"
    sentence = (
        f"Gate {'passed' if verdict['passed'] else 'not passed'}: {verdict['task']} {verdict['metric']} "
        f"{verdict['tuned']:.4f} against the base model's {verdict['base']:.4f} on {verdict['rows']} "
        f"held-out rows{by} (more than {verdict['needed_standard_errors']:g} above are needed)"
    )
    failures = "; ".join(verdict["failures"])
    run.panel("verdict", sentence, good=verdict["passed"], note=failures, section="Evaluation")
    base, tuned = (json.loads(run.inputs[n].read_text(encoding="utf-8")) for n in ("base", "tuned"))
    comparison(run, base, tuned)
    if shared:
        run.panel(
            "table",
            "Held-out rows that are also in the training data",
            section="Evaluation",
            columns=["row", "held-out text", "number of the training text"],
            rows=[[r["row"], short(" / ".join(r["texts"])), r["training_text"]] for r in shared],
            note=f"The first {len(shared)}; all are in the evidence, shared_rows.json.",
        )


def means(scores: Sequence[float], groups: Sequence[Sequence[int]]) -> list[float]:
    """One score for each group of rows that are one row."""
    return [math.fsum(scores[i] for i in group) / len(group) for group in groups]


def decide(
    *,
    task: str,
    metric: str,
    base: Sequence[float],
    tuned: Sequence[float],
    higher_is_better: bool,
    shared: int,
    copies: int = 0,
    unknown: int = 0,
    min_rows: int,
    standard_errors: float,
) -> dict[str, Any]:
    """The verdict on paired scores of different rows. shared: how many the training data holds too.

    copies: rows left out as repeats of others. unknown: rows without a text to recognise them by.
    The standard error is that of the mean difference of pairs: both models answered the same
    rows, so how hard a row is cancels out. Where all gains are equal it would be zero, as if more
    rows could bring nothing new: it is at least what one more row without any gain would give.
    """
    n = len(base)
    sign = 1.0 if higher_is_better else -1.0
    gains = [sign * (b - a) for a, b in zip(base, tuned, strict=True)]
    gain = math.fsum(gains) / n if n else 0.0
    error = math.sqrt(math.fsum((g - gain) ** 2 for g in gains) / (n - 1) / n) if n > 1 else 0.0
    least = abs(gain) / (n + 1)
    flat = n > 1 and error < least
    error = max(error, least)
    needed = standard_errors * error
    failures = []
    if n < min_rows:
        repeats = f" ({copies} more are copies of them)" if copies else ""
        failures.append(f"only {n} different held-out rows{repeats}, {min_rows} are needed")
    if unknown:
        failures.append(f"{unknown} held-out rows have no text by which the training data could be searched")
    if shared:
        failures.append(f"{shared} of {n} held-out rows are also in the training data")
    if not gain > needed:
        failures.append(f"gain {gain:.4f} is not above {standard_errors:g} standard errors ({needed:.4f})")
    mean_base, mean_tuned = (math.fsum(x) / n if n else 0.0 for x in (base, tuned))
    ratio = f"{gain / error:.1f} standard errors" if error else "no change"
    if flat:
        ratio += ", taking one more row without gain, as all rows gained the same"
    summary = (
        f"{task} {metric}: base {mean_base:.4f}, tuned {mean_tuned:.4f} on {n} held-out rows"
        + (f" and {copies} copies; " if copies else "; ")
        + f"gain {gain:+.4f} = {ratio} (needs more than {standard_errors:g}); "
        f"{shared} rows shared with training"
    )
    return {
        "passed": not failures,
        "summary": summary + (". Failed: " + "; ".join(failures) if failures else ""),
        "failures": failures,
        "task": task,
        "metric": metric,
        "rows": n,
        "base": mean_base,
        "tuned": mean_tuned,
        "gain": gain,
        "standard_error": error,
        "standard_errors": gain / error if error else None,
        "needed_standard_errors": standard_errors,
        "shared_rows": shared,
        "copies": copies,
        "unrecognisable_rows": unknown,
        "assumed_spread": flat,
    }


def without_training_rows(verdict: dict[str, Any]) -> dict[str, Any]:
    """A gate that was not given the training rows cannot vouch that none is shared: it fails."""
    reason = "the training rows were not given, so none can be ruled out as shared"
    return {
        **verdict,
        "passed": False,
        "failures": [*verdict["failures"], reason],
        "summary": f"{verdict['summary']}. Failed: {reason}",
        "shared_rows": None,
    }


def rows_of(path: Path, task: str, metric: str) -> dict[str, Any]:
    """Scores of a task, or of all tasks of a group, in order. Raises StageError for a missing metric."""
    import json

    from mxt.errors import did_you_mean

    results = json.loads(path.read_text(encoding="utf-8"))
    names = members(task, results["groups"])
    rows: list[dict[str, Any]] = []
    directions: set[bool] = set()
    for name in names:
        if name not in results["tasks"]:
            raise StageError(
                f"results have no task '{name}'{did_you_mean(name, results['tasks'])}",
                where=path.name,
                hint="eval.gate.task must be one of eval.tasks",
            )
        found: Mapping[str, Any] = results["tasks"][name]
        directions.add(bool(found["higher_is_better"].get(metric.partition(",")[0], True)))
        for sample in found["samples"]:
            if metric not in sample["scores"]:
                raise StageError(
                    f"task '{name}' has no score a row for metric '{metric}'"
                    f"{did_you_mean(metric, sample['scores'])}",
                    where="eval.gate.metric",
                    hint=f"it has {', '.join(sorted(sample['scores'])) or 'none'}",
                )
            texts, answer = sample["texts"], sample.get("answer") or ""
            key = (name, sample["id"], tuple(texts), answer)
            rows.append({"key": key, "texts": texts, "answer": answer, "score": sample["scores"][metric]})
    if len(directions) > 1:
        raise StageError(f"for '{metric}' higher is better in some tasks of '{task}' and worse in others")
    return {"rows": rows, "higher_is_better": directions != {False}}


def members(task: str, groups: Mapping[str, Sequence[str]]) -> list[str]:
    """The tasks of a group, of its groups too, in order; a task is its own only member."""
    if task not in groups:
        return [task]
    return list(dict.fromkeys(name for member in groups[task] for name in members(member, groups)))


def _write(path: Path, form: object) -> None:
    import json

    path.write_text(json.dumps(form, sort_keys=True, indent=2, ensure_ascii=False) + "\n")
