"""eval: what base and tuned model are judged on, and the gate between them."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from mxt.errors import did_you_mean
from rules._revisions import UNPINNED
from rules._schema.base import Positive, Revision, Section, Texts

# written by tools/make_task_names.py; the first line says of which lm-eval
NAMES = Path(__file__).with_name("lm_eval_tasks.txt")


def _known(tasks: tuple[str, ...]) -> tuple[str, ...]:
    """The entries of eval.tasks, so that a slip is not found after the training."""
    named = [task for task in tasks if not is_task_file(task)]
    text = NAMES.read_text(encoding="utf-8") if named else ""
    for task in named:
        if not task or f"\n{task}\n" not in text:
            head, *names = text.splitlines()
            raise ValueError(
                f"names '{task}', and {head.removeprefix('# ')} has no such task{did_you_mean(task, names)}\n"
                "a task of your own is a file of the package, named with its .yaml"
            )
    return tasks


class Gate(Section):
    """The test that a tuned model must pass against its base."""

    task: str = Field(
        description="the task's name, one of eval.tasks (of a task file: its name without .yaml)"
    )
    metric: str = Field("acc", description="a metric with one score a row, higher is better")
    min_rows: int = Field(200, ge=200, description="held-out rows needed for a verdict")
    standard_errors: float = Field(
        3.0, ge=3.0, description="the gain must exceed this many paired standard errors"
    )


class Eval(Section):
    """Judging base and tuned model with lm-eval."""

    tasks: Annotated[Texts, AfterValidator(_known)] = Field(
        min_length=1, description="lm-eval tasks by name, or task files (.yaml) in the package"
    )
    files: Texts = Field((), description="globs of the data files in the package that the task files name")
    revisions: dict[Annotated[str, Field(pattern=r"^[\w.-]+(/[\w.-]+)?$")], Revision] = Field(
        default_factory=dict,
        description="for tasks given by name: the commit of each dataset that they read, by its Hub name",
    )
    num_fewshot: int = Field(0, ge=0, description="worked examples before each question")
    limit: Positive | None = Field(None, description="rows per task, the first ones; absent: all")
    batch_size: Positive = Field(
        16, description="requests at a time; it may change the last bits, so it is keyed"
    )
    chat_template: bool = Field(False, description="ask through the model's chat template, as a user's turn")
    code: Literal["refuse", "sandbox"] = Field(
        "refuse",
        description="tasks that run what the model writes, such as humaneval: 'sandbox' runs it there",
    )
    gate: Gate | None = Field(None, description="when the tuned model passes")

    @property
    def task_names(self) -> tuple[str, ...]:
        """The tasks' names: those of task files are the files' names without .yaml."""
        return tuple(PurePosixPath(t).stem if is_task_file(t) else t for t in self.tasks)

    @model_validator(mode="after")
    def _gate_task(self) -> Eval:
        doubled = sorted({n for n in self.task_names if self.task_names.count(n) > 1})
        if doubled:
            raise ValueError(f"tasks name '{doubled[0]}' twice")
        named = [t for t in self.tasks if not is_task_file(t)]
        if named and not self.revisions:
            raise ValueError(
                f"tasks names '{named[0]}', whose dataset on the Hub may change\n"
                f"name it in 'revisions', as in {{owner/name: {UNPINNED}}}; 'mxt pin' looks up its commit"
            )
        if self.gate and self.gate.task not in self.task_names:
            raise ValueError(
                f"gate.task '{self.gate.task}' is none of the tasks: {', '.join(self.task_names)}"
            )
        if self.gate and self.limit is not None and self.limit < self.gate.min_rows:
            raise ValueError(f"limit {self.limit} leaves fewer rows than gate.min_rows {self.gate.min_rows}")
        return self


def is_task_file(task: str) -> bool:
    """Whether an entry of eval.tasks is a file of the package (else the name of an lm-eval task)."""
    return re.search(r"\.ya?ml$", task) is not None
