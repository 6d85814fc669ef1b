"""lm-eval on a model in this process: offline, repeatable, reported row by row, with a score for each row."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mxt.errors import did_you_mean
from mxt.rule import Run, StageError
from rules._runtime import first_line

if TYPE_CHECKING:
    from lm_eval.tasks import TaskManager

NAMES_A_ROW = re.compile(r"(?:^|_|-|\.)(?:id|idx|index|uuid|guid|hash)s?$|[a-z]I[dD]$", re.ASCII)


def task_manager(local: Path, names: Sequence[str], local_names: Sequence[str]) -> TaskManager:
    """Finds the tasks. local: folder with the recipe's own task files.

    The thousands of lm-eval's own are read only when one is asked for. Raises StageError for an
    unknown name.
    """
    from lm_eval.tasks import TaskManager

    hub = [n for n in names if n not in local_names]
    manager = TaskManager(include_path=str(local), include_defaults=bool(hub))
    known = set(manager.all_tasks)
    for name in hub:
        if name not in known:
            raise StageError(
                f"lm-eval has no task '{name}'{did_you_mean(name, known)}",
                hint="'lm-eval ls tasks' lists them; a task file of your own ends in .yaml",
            )
    return manager


def require_hub(names: Sequence[str]) -> None:
    """Raises StageError at once where the Hub cannot be reached; its library would try for half a minute."""
    import socket
    from urllib.parse import urlsplit

    from huggingface_hub import constants

    if any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")):
        return  # only the proxy knows what can be reached
    place = urlsplit(constants.ENDPOINT)
    try:
        port = place.port or (80 if place.scheme == "http" else 443)
        socket.create_connection((place.hostname or "", port), timeout=10).close()
    except OSError as error:
        raise unreachable(names) from error


def unreachable(names: Sequence[str]) -> StageError:
    return StageError(
        f"the data of task '{names[0]}' cannot be fetched from the Hugging Face Hub",
        where=", ".join(names),
        hint="connect to the network and build again, "
        "or give the task as a .yaml file with its rows in eval.files",
    )


def require_pins(manager: TaskManager, names: Sequence[str], revisions: Mapping[str, str]) -> None:
    """Raises StageError for a task whose dataset is not pinned, as far as its file tells: before any work."""
    for name in names:
        config = manager.task_index[name].cfg or {}
        if isinstance(config.get("dataset_path"), str):
            pinned(config["dataset_path"], revisions, {**(config.get("dataset_kwargs") or {})})


def pinned(path: str, revisions: Mapping[str, str], arguments: Mapping[str, Any]) -> str | None:
    """The commit at which a dataset is to be read; None for rows that lie here already.

    path, arguments: as for datasets.load_dataset. Raises StageError for what nobody has pinned.
    """
    from datasets.packaged_modules import _PACKAGED_DATASETS_MODULES

    if path in _PACKAGED_DATASETS_MODULES:  # a reader of files, not a dataset
        for file in _all_texts(arguments.get("data_files")):
            if not Path(file).is_absolute():
                raise StageError(
                    f"a task reads '{file}', which can be pinned to no commit",
                    hint="download it, and give the task as a .yaml file with its rows in eval.files",
                )
        return None
    commit = revisions.get(path) or arguments.get("revision")
    if commit is None or not re.fullmatch("[0-9a-f]{40}", str(commit)):
        raise StageError(
            f"a task reads the dataset '{path}', whose commit the recipe does not say"
            f"{did_you_mean(path, revisions)}",
            where="eval.revisions",
            hint=f"pin it, as in revisions: {{{path}: <40 hex>}}; "
            f"its commits are listed at huggingface.co/datasets/{path}/commits/main",
        )
    return str(commit)


@contextmanager
def pinned_datasets(revisions: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Let every dataset be read at its pinned commit; yields those read so far with their commits."""
    import datasets

    original = datasets.load_dataset
    used: dict[str, str] = {}

    def load_dataset(path: str, *args: Any, **kwargs: Any) -> Any:
        commit = pinned(str(path), revisions, kwargs)
        if commit is not None:
            used[str(path)] = kwargs["revision"] = commit
        return original(path, *args, **kwargs)

    datasets.load_dataset = load_dataset
    try:
        yield used
    finally:
        datasets.load_dataset = original


def contain_harness() -> None:
    """Take from lm-eval what reaches beyond the evaluation: templates that run code, looks at the host.

    It renders the templates of a task file with all of Python in reach, and afterwards asks git, pip
    and a dozen other programs about the machine, which results.json does not hold.
    """
    import lm_eval.evaluator
    import lm_eval.utils
    from jinja2 import StrictUndefined
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(undefined=StrictUndefined, keep_trailing_newline=True)
    environment.filters["regex_replace"] = lm_eval.utils.regex_replace
    lm_eval.utils.env = environment
    lm_eval.evaluator.get_git_commit_hash = lambda: None
    lm_eval.evaluator.add_env_info = lambda _: None


def counting_model(run: Run, model: Any, tokenizer: Any, batch_size: int) -> Any:
    """lm-eval's Hugging Face model that reports how many requests it has answered."""
    from lm_eval.models.huggingface import HFLM

    class Counting(HFLM):  # type: ignore[misc]
        done = 0
        total = 0
        began = 0.0

        def _begin(self, requests: Sequence[Any]) -> None:
            self.done, self.total, self.began = 0, len(requests), time.monotonic()

        def _count(self, rows: int) -> None:
            self.done = min(self.done + rows, self.total)
            spent = time.monotonic() - self.began
            left = spent / max(self.done, 1) * (self.total - self.done)
            run.report(step=self.done, of=self.total, eta_s=round(left, 1), note="requests")

        def _loglikelihood_tokens(self, requests: Any, *args: Any, **kwargs: Any) -> Any:
            self._begin(requests)
            return super()._loglikelihood_tokens(requests, *args, **kwargs)

        def generate_until(self, requests: Any, *args: Any, **kwargs: Any) -> Any:
            self._begin(requests)
            return super().generate_until(requests, *args, **kwargs)

        def _model_call(self, inps: Any, *args: Any, **kwargs: Any) -> Any:
            out = super()._model_call(inps, *args, **kwargs)
            self._count(inps.shape[0])
            return out

        def _model_generate(self, context: Any, *args: Any, **kwargs: Any) -> Any:
            out = super()._model_generate(context, *args, **kwargs)
            self._count(context.shape[0])
            return out

    return Counting(pretrained=model, tokenizer=tokenizer, batch_size=batch_size, device="cpu")


def evaluate_tasks(
    manager: TaskManager, model: Any, names: Sequence[str], local: Sequence[str], recipe: Mapping[str, Any]
) -> dict[str, Any]:
    """results.json as a mapping: scores by task, and by row. local: names of the recipe's own tasks."""
    import logging

    from datasets import disable_progress_bars
    from lm_eval import simple_evaluate

    disable_progress_bars()
    contain_harness()
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    seed = recipe["meta.seed"]
    revisions = recipe["eval.revisions"] or {}
    try:
        with pinned_datasets(revisions) as used:
            raw = simple_evaluate(
                model=model,
                tasks=list(names),
                task_manager=manager,
                num_fewshot=recipe["eval.num_fewshot"],
                limit=recipe["eval.limit"],
                apply_chat_template=recipe["eval.chat_template"],
                bootstrap_iters=0,
                log_samples=True,
                random_seed=seed,
                numpy_random_seed=seed,
                torch_random_seed=seed,
                fewshot_random_seed=seed,
            )
    except StageError:
        raise
    except Exception as error:  # lm-eval raises whatever its libraries do
        raise _explained(error, [n for n in names if n not in local]) from error
    for path in sorted(set(revisions) - set(used)):
        raise StageError(
            f"no task reads the dataset '{path}'{did_you_mean(path, used)}", where="eval.revisions"
        )
    return {
        "version": 1,
        "datasets": dict(sorted(used.items())),
        "settings": {k: recipe[f"eval.{k}"] for k in ("num_fewshot", "limit", "batch_size", "chat_template")},
        "groups": {k: sorted(v) for k, v in sorted((raw.get("group_subtasks") or {}).items()) if v},
        "tasks": {name: _task_result(name, raw) for name in sorted(raw["samples"])},
    }


def _explained(error: Exception, hub: Sequence[str]) -> StageError:
    """An error of the harness with what can be done about it."""
    chain: list[BaseException] = [error]
    while chain[-1].__cause__ or chain[-1].__context__:
        chain.append(chain[-1].__cause__ or chain[-1].__context__)  # type: ignore[arg-type]
    names = {c.__name__ for e in chain for c in type(e).__mro__}
    no_network = {
        "ConnectionError",
        "ConnectError",
        "OfflineModeIsEnabled",
        "LocalEntryNotFoundError",
        "DatasetNotFoundError",
        "TimeoutError",
        "TransportError",
    }
    if hub and names & no_network:
        return unreachable(hub)
    if "SecurityError" in names:
        return StageError(
            f"a template reaches for what is no data: {first_line(error)}",
            hint="templates of tasks may use a row's fields and Jinja's filters",
        )
    return StageError(
        f"lm-eval failed: {type(error).__name__}: {first_line(error)}",
        hint="the whole traceback is in the action's log",
    )


def _task_result(name: str, raw: Mapping[str, Any]) -> dict[str, Any]:
    """One task: aggregate metrics, the direction of each, and the rows in order."""
    scores = {
        metric.removesuffix(",none"): value
        for metric, value in sorted(raw["results"].get(name, {}).items())
        if isinstance(value, (int, float))
        and not isinstance(value, bool)
        and "_stderr" not in metric
        and metric not in ("sample_len", "sample_count")
    }
    rows: dict[int, dict[str, Any]] = {}
    for sample in raw["samples"][name]:
        row = rows.setdefault(
            sample["doc_id"],
            {
                "id": sample["doc_id"],
                "texts": texts_of(sample["doc"]),
                "answer": answer_of(sample),
                "scores": {},
            },
        )
        for metric in sample["metrics"]:
            value = sample[metric]
            if isinstance(value, (int, float)):
                suffix = "" if sample["filter"] == "none" else f",{sample['filter']}"
                row["scores"][metric + suffix] = float(value)
    return {
        "metrics": scores,
        "higher_is_better": dict(sorted((raw.get("higher_is_better") or {}).get(name, {}).items())),
        "version": str(raw["versions"].get(name)),
        "samples": [rows[i] for i in sorted(rows)],
    }


def texts_of(doc: Any) -> list[str]:
    """What a row is known by: its own texts, by field name; of a row without any, all texts within.

    The gate looks for them in the training rows. The choices of a question are no such text: a
    wrong answer may well stand elsewhere. Nor is a row's number or name.
    """
    if not isinstance(doc, Mapping):
        return _all_texts(doc)
    doc = {k: doc[k] for k in sorted(doc) if not NAMES_A_ROW.search(k)}
    return [v for v in doc.values() if isinstance(v, str)] or _all_texts(doc)


def answer_of(sample: Mapping[str, Any]) -> str:
    """The right answer in words: of several choices the right one; "" where the task has none."""
    target = sample["target"]
    if isinstance(target, (list, tuple)):
        target = target[0] if target else ""
    if isinstance(target, int) and 0 <= target < len(sample["arguments"]):
        target = sample["arguments"][target][1]  # as it continues the question
    return target.strip() if isinstance(target, str) else ""


def _all_texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return [t for k in sorted(value) for t in _all_texts(value[k])]
    if isinstance(value, (list, tuple)):
        return [t for item in value for t in _all_texts(item)]
    return []


def scratch() -> Path:
    """A private folder of this process for rewritten task files."""
    import tempfile

    return Path(tempfile.mkdtemp(prefix="tasks-", dir=os.environ.get("TMPDIR")))
