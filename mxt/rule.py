"""The public surface for rule authors: what a rule declares and what its functions receive.

A rule is one file, `rules/<name>.py`; in an MXTBUILD it appears as the function `<name>(...)`:

    from mxt.rule import Attributes, Label, Run, Target

    class Attrs(Attributes):          # the rule's own attributes (name, tags, toolchain and
        src: Label                    # platform are common to all rules)
        top: int = 10

    def actions(target: Target) -> None:          # analysis: pure, no heavy imports
        target.action(
            run=count, mnemonic="WordCount",
            inputs={"text": target.attrs.src},
            outputs={"counts": "counts.json"},    # "dir/" declares a folder
            params={"top": target.attrs.top},
        )

    def count(run: Run) -> None:                  # execution: its own process
        text = run.inputs["text"].read_text()
        run.outputs["counts"].write_text(...)

Module-level names the engine reads: `Attrs`, `actions`, and optionally `VERSION` (an integer,
raised when behaviour changes; without it the module's bytes are keyed), `KEYED` and `UNKEYED`
(dotted recipe fields that the rule reads), `DATA` (files beside the module that it reads),
`TEST = True` (its output "verdict" is JSON {"passed": bool, "summary": str}) and `ESTIMATE` (the name of a
module of the folder that says what a target will cost, see `mxt.estimates`; it is in no key).
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from mxt.action.action import Need, Refusal
from mxt.action.resources import Resources
from mxt.errors import StageError

# true in the process of an action, where a rule's Attrs are declared again and never used
executing = False

if TYPE_CHECKING:
    from mxt._attributes import Attributes
    from mxt.graph.target import Target
    from mxt.store.progress import Checkpoints
else:

    def __getattr__(name: str) -> Any:
        # pydantic costs 80 ms and need not be in a toolchain: an action's own process does without
        if name == "Attributes":
            if executing:
                return type("Attributes", (), {})
            from mxt._attributes import Attributes

            return Attributes
        if name == "Target":
            from mxt.graph.target import Target

            return Target
        if name == "Checkpoints":  # only stages that can resume need it
            from mxt.store.progress import Checkpoints

            return Checkpoints
        raise AttributeError(name)


__all__ = [
    "Attributes",
    "Checkpoints",
    "Config",
    "Label",
    "Labels",
    "Need",
    "Refusal",
    "Resources",
    "Run",
    "StageError",
    "Target",
    "not_yet",
]


class LabelMark:
    """Marks an attribute as a label: the engine resolves it and adds a dependency."""


class ConfigMark:
    """Marks an attribute as a whole recipe: only the fields in KEYED and UNKEYED pass on."""


Label = Annotated[str, LabelMark]
Labels = Annotated[tuple[str, ...], LabelMark]
Config = Annotated[dict[str, Any], ConfigMark]


@dataclass(frozen=True)
class Run:
    """What a stage's function receives when it executes.

    params: the action's keyed parameters. config: the recipe's KEYED fields by dotted name, such
    as config["train.lr"]; a field of an absent section is None. unkeyed: the UNKEYED ones.
    inputs: by name a Path, or a list of Paths where a list was declared. outputs: by name the
    Path to write (a declared folder exists already). evidence: a folder for what describes
    this run. progress: a folder kept per action key until it succeeds, for resuming (see
    Checkpoints); None unless declared. accelerants: a folder of files that only save time; None
    unless declared.
    platform: the declared platform's properties. threads: the platform's (1 without one): how many threads
    compute may change the last bits, so it is keyed, and `cpus` is not it.
    """

    params: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    unkeyed: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, Any] = field(default_factory=dict)
    outputs: Mapping[str, Path] = field(default_factory=dict)
    evidence: Path = Path("evidence")
    progress: Path | None = None
    accelerants: Path | None = None
    platform: Mapping[str, Any] = field(default_factory=dict)
    threads: int = 1

    def report(self, **fields: float | str) -> None:
        """Tell the terminal how far this stage is.

        Usual fields: stage (text), step, of, loss, tokens_per_s, eta_s (seconds), note (what it does now),
        summary (stays on the line of the finished action).
        Anything numeric is shown; a report costs microseconds, call it each step.
        """
        fd = os.environ.get("MXT_REPORT_FD")
        if fd is None:
            return
        line = json.dumps({"time": time.time(), **fields}) + "\n"
        try:
            os.write(int(fd), line.encode())
        except OSError:  # mxt is gone; its death signal ends this process
            pass

    def panel(self, kind: str, title: str, **fields: Any) -> None:
        """Something people want to see of this run, in the report beside the receipt: evidence, in no key.

        kind: "lines", "bars", "table", "facts" or "verdict", with their fields (see `mxt.panels` and
        docs/write-a-rule.md). Panels appear in the order of the calls; long curves are thinned here.
        What cannot be shown costs no result: the log and the report say so.
        """
        from mxt.panels import FILE, plain, read_panels, thin_form

        file = self.evidence / FILE
        form = thin_form({"kind": kind, "title": title, **fields})
        for problem in read_panels(json.dumps([plain(form)]).encode()).problems:
            print(f"warning: panel '{title}': {problem}", file=sys.stderr)
        forms = json.loads(file.read_text(encoding="ascii")) if file.exists() else []
        self.evidence.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps([*forms, plain(form)], separators=(",", ":")) + "\n", encoding="ascii")

    @staticmethod
    def fail(message: str, *, where: str = "", hint: str = "") -> StageError:
        """The error to raise for bad data or settings: `raise run.fail("...", where=..., hint=...)`."""
        return StageError(message, where=where, hint=hint)


def not_yet(what: str, hint: str = "") -> Refusal:
    """For `target.action(refuse=...)`: a stage whose key is known and whose work is not written."""
    return Refusal("absent", f"not implemented yet: {what}", hint)


Inputs = Mapping[str, "str | Sequence[str]"]
