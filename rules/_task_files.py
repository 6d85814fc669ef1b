"""Local lm-eval task files: checked against their data, then written anew with the data's real place.

A task file names its data relative to its own folder; in the sandbox both lie elsewhere, so the
harness gets a copy in which data_files points at the declared inputs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mxt.errors import did_you_mean
from mxt.rule import StageError

TEMPLATES = ("doc_to_text", "doc_to_target", "doc_to_choice", "description")
OUTPUT_TYPES = ("loglikelihood", "loglikelihood_rolling", "generate_until", "multiple_choice")
# keys of lm-eval's tasks without those that name Python code, other files or the Hub
KEYS = (
    "task",
    "task_alias",
    "tag",
    "dataset_path",
    "dataset_name",
    "dataset_kwargs",
    "training_split",
    "validation_split",
    "test_split",
    "fewshot_split",
    "doc_to_text",
    "doc_to_target",
    "doc_to_choice",
    "description",
    "target_delimiter",
    "fewshot_delimiter",
    "fewshot_config",
    "num_fewshot",
    "metric_list",
    "output_type",
    "generation_kwargs",
    "repeats",
    "filter_list",
    "should_decontaminate",
    "doc_to_decontamination_query",
    "gen_prefix",
    "metadata",
)


def place_tasks(tasks: Sequence[Path], files: Sequence[Path], folder: Path) -> list[str]:
    """Write checked copies of the task files into folder; returns the tasks' names.

    files: the data files that were declared. Raises StageError with file and line.
    """
    data = {f.name: f for f in files}
    if len(data) < len(files):
        names = [f.name for f in files]
        doubled = next(n for n in names if names.count(n) > 1)
        raise StageError(f"two data files of eval.files are named '{doubled}'", hint="rename one of them")
    folder.mkdir(parents=True, exist_ok=True)
    names = []
    for path in tasks:
        task = read_task(path)
        check_rows(path, task, place_data(path, task, data))
        (folder / f"{path.stem}.yaml").write_text(json.dumps(task, ensure_ascii=False))  # JSON is YAML
        names.append(path.stem)
    return names


def read_task(path: Path) -> dict[str, Any]:
    """A task file as a mapping. Raises StageError for what is broken or would run code."""
    import yaml

    class Loader(yaml.SafeLoader):
        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):  # a few lines of them can stand for billions of nodes
                event: Any = self.peek_event()  # type: ignore[no-untyped-call]
                raise StageError(
                    f"task file uses an alias '*{event.anchor}'",
                    where=f"{path.name}:{event.start_mark.line + 1}",
                    hint="write out what it stands for",
                )
            return super().compose_node(parent, index)

    def refuse(_: Any, node: Any) -> None:
        raise StageError(
            "task file calls a Python function (!function)",
            where=f"{path.name}:{node.start_mark.line + 1}",
            hint="write it as a Jinja template; a task file's code is no declared input",
        )

    Loader.add_constructor("!function", refuse)
    try:
        task = yaml.load(path.read_text(encoding="utf-8"), Loader=Loader)  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise StageError(
            f"task file is no YAML: {getattr(error, 'problem', None) or error}", where=f"{path.name}{line}"
        ) from error
    except RecursionError as error:
        raise StageError("task file is nested too deeply", where=path.name) from error
    if not isinstance(task, dict):
        raise StageError("task file is no mapping", where=path.name, hint="see lm-eval's guide to new tasks")
    if "include" in task:
        raise StageError(
            "task file includes another", where=path.name, hint="write the included keys into it"
        )
    if task.get("task") != path.stem:
        raise StageError(
            f"task file names its task '{task.get('task')}'",
            where=path.name,
            hint=f"write 'task: {path.stem}'",
        )
    for key in task:
        if key not in KEYS:
            raise StageError(
                f"task file has an unknown key '{key}'{did_you_mean(str(key), KEYS)}",
                where=path.name,
                hint="keys that name code or other files are not read: a task is this file and its rows",
            )
    for metric in task.get("metric_list") or []:
        if isinstance(metric, dict) and metric.get("hf_evaluate"):
            raise StageError(
                f"metric '{metric.get('metric')}' is code from the Hub (hf_evaluate)",
                where=path.name,
                hint="use one of lm-eval's own metrics",
            )
    kind = task.get("output_type", "generate_until")
    if kind not in OUTPUT_TYPES:
        raise StageError(
            f"unknown output_type '{kind}'{did_you_mean(str(kind), OUTPUT_TYPES)}",
            where=path.name,
            hint=f"it is one of {', '.join(OUTPUT_TYPES)}",
        )
    if task.get("dataset_path") != "json":
        raise StageError(
            f"dataset_path is '{task.get('dataset_path')}'; a local task reads JSON lines",
            where=path.name,
            hint="write 'dataset_path: json' and dataset_kwargs.data_files, or name a task of lm-eval",
        )
    return task


def place_data(path: Path, task: dict[str, Any], data: Mapping[str, Path]) -> list[Path]:
    """Point the task's data_files at the inputs; returns them. data: by file name."""
    named = (task.get("dataset_kwargs") or {}).get("data_files")
    if isinstance(named, (str, list)):
        named = {"train": named}
    if not isinstance(named, dict) or not named:
        raise StageError(
            "task file has no dataset_kwargs.data_files", where=path.name, hint="e.g. {test: rows.jsonl}"
        )
    found: list[Path] = []
    placed: dict[str, list[str]] = {}
    for split, value in named.items():
        for name in [value] if isinstance(value, str) else list(value):
            base = str(name).rpartition("/")[2]
            if base not in data:
                raise StageError(
                    f"data file '{name}' is not among the recipe's eval.files{did_you_mean(base, data)}",
                    where=path.name,
                    hint=f"add '{name}' to eval.files",
                )
            found.append(data[base])
            placed.setdefault(str(split), []).append(str(data[base].absolute()))
    splits = {
        task[k] for k in ("test_split", "validation_split", "training_split", "fewshot_split") if task.get(k)
    }
    for split in sorted(splits - set(placed)):
        raise StageError(f"task has no data for its split '{split}'", where=path.name, hint="see data_files")
    if not splits:
        raise StageError(
            "task file names no split", where=path.name, hint=f"e.g. 'test_split: {min(placed)}'"
        )
    task["dataset_kwargs"] = {**task["dataset_kwargs"], "data_files": placed}
    return found


def check_rows(path: Path, task: Mapping[str, Any], files: Iterable[Path]) -> None:
    """Every row is an object with the fields that the templates use. Raises StageError: file:line."""
    needed = template_fields(path, task)
    for file in files:
        direct: set[str] | None = None
        with file.open("rb") as lines:
            number = 0
            for number, line in enumerate(lines, 1):
                where = f"{file.name}:{number}"
                try:
                    row = json.loads(line)
                except ValueError as error:
                    raise StageError(f"row is no JSON: {error}", where=where) from error
                if not isinstance(row, dict):
                    raise StageError("row is no JSON object", where=where)
                if direct is None:  # a template may be just a field's name, which only the rows can tell
                    direct = needed | {t for t in map(task.get, TEMPLATES) if isinstance(t, str) and t in row}
                for field in sorted(direct - set(row)):
                    raise StageError(
                        f"row lacks the field '{field}' that task '{path.stem}' uses"
                        f"{did_you_mean(field, row)}",
                        where=where,
                    )
            if not number:
                raise StageError("data file has no rows", where=file.name)


def template_fields(path: Path, task: Mapping[str, Any]) -> set[str]:
    """Names that the task's Jinja templates need of a row, less those that they do without where absent."""
    from jinja2 import Environment, TemplateSyntaxError, meta

    texts = [t for t in map(task.get, TEMPLATES) if isinstance(t, str)]
    texts += [t for t in task.get("doc_to_choice") or [] if isinstance(t, str) and "{{" in t]
    fields: set[str] = set()
    environment = Environment()  # noqa: S701 - parsed only
    environment.filters["regex_replace"] = str
    for text in texts:
        try:
            tree = environment.parse(text)
            fields |= meta.find_undeclared_variables(tree) - environment.globals.keys() - _optional(tree)
        except TemplateSyntaxError as error:
            raise StageError(
                f"template is broken: {error.message}: {text[:80]!r}", where=path.name
            ) from error
    return fields


def _optional(tree: Any) -> set[str]:
    """Names that a template asks whether they are there, or has a default for."""
    from jinja2 import nodes

    asked = [n.node for n in tree.find_all(nodes.Test) if n.name in ("defined", "undefined")]
    asked += [n.node for n in tree.find_all(nodes.Filter) if n.name in ("default", "d")]
    return {n.name for n in asked if isinstance(n, nodes.Name)}
