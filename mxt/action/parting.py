"""Where two histories of the same actions part, and which of the differences only follow from others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mxt.action.explain import ABSENT, Change, compare


@dataclass(frozen=True)
class Step:
    """One action as a build or a receipt knows it. name: by which two steps are the same action.

    key: "" if it was never known. form: None if it is not kept. outputs: "kind digest" by name, None if not
    known. makers: input name -> the steps that may have made it. status: as in the events; "" if not known.
    circumstances: of its run, in no key: machine, sandbox and the like.
    """

    name: str
    key: str
    form: Mapping[str, Any] | None
    outputs: Mapping[str, str] | None
    makers: Mapping[str, frozenset[str]] = field(default_factory=dict)
    status: str = ""
    circumstances: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Difference:
    """verdict: changed (by itself), follows (only through its inputs), bytes (other outputs under the same
    key), added, removed (in one of the two only), unknown (a key or a form is lacking: see why).

    changes: fields of the form, or outputs where the verdict is bytes. follows: field -> the step it follows.
    circumstances: what else was different about the runs, where the verdict is bytes.
    """

    name: str
    verdict: str
    old: Step | None
    new: Step | None
    changes: tuple[Change, ...] = ()
    follows: Mapping[str, str] = field(default_factory=dict)
    circumstances: tuple[Change, ...] = ()
    why: str = ""

    @property
    def causes(self) -> tuple[Change, ...]:
        """The changes that follow from no other step."""
        return tuple(change for change in self.changes if change.field not in self.follows)


def part(old: Sequence[Step], new: Sequence[Step]) -> list[Difference]:
    """The differences, in the order of `new` (each after those it reads), then what only `old` has."""
    before = {step.name: step for step in old}
    after = {step.name: step for step in new}
    found: dict[str, Difference] = {}
    gone = before.keys() - after.keys()
    for step in new:
        one = _difference(before.get(step.name), step, found, gone)
        if one is not None:
            found[step.name] = one
    for step in old:
        if step.name in gone:
            found[step.name] = Difference(step.name, "removed", step, None)
    return list(found.values())


def _difference(
    old: Step | None, new: Step, found: Mapping[str, Difference], gone: set[str]
) -> Difference | None:
    if old is None:
        return Difference(new.name, "added", None, new)
    if not old.key or not new.key:
        if old.key == new.key:
            return None  # neither build came so far
        which, step = ("newer", new) if old.key else ("older", old)
        return Difference(
            new.name, "unknown", old, new, why=f"its key was never known in the {which} one: {step.status}"
        )
    if old.key == new.key:
        if old.outputs is None or new.outputs is None or old.outputs == new.outputs:
            return None
        changes = _mapping_changes("outputs", old.outputs, new.outputs)
        circumstances = tuple(compare(dict(old.circumstances), dict(new.circumstances)))
        return Difference(new.name, "bytes", old, new, changes, circumstances=circumstances)
    if old.form is None or new.form is None:
        which = "older" if old.form is None else "newer"
        return Difference(new.name, "unknown", old, new, why=f"the form of its {which} key is no longer kept")
    changes = tuple(compare(dict(old.form), dict(new.form)))
    follows = {change.field: maker for change in changes if (maker := _maker(change, old, new, found, gone))}
    verdict = "follows" if changes and len(follows) == len(changes) else "changed"
    return Difference(new.name, verdict, old, new, changes, follows)


def _maker(change: Change, old: Step, new: Step, found: Mapping[str, Difference], gone: set[str]) -> str:
    """The step from which a change of an input follows; "" if it is a change of its own."""
    if not change.field.startswith("inputs."):
        return ""
    name = change.field.removeprefix("inputs.")
    made_before, made_after = old.makers.get(name, frozenset()), new.makers.get(name, frozenset())
    if change.new == ABSENT:
        return min(made_before & gone, default="")
    differing = {maker for maker in made_after if maker in found}
    if change.old == ABSENT:
        return min((maker for maker in differing if found[maker].verdict == "added"), default="")
    both = made_before & differing
    if both:
        return min(both)
    # what made the old bytes is not on record any more, or is not told by them alone
    return min(differing, default="") if not made_before else ""


def _mapping_changes(prefix: str, old: Mapping[str, str], new: Mapping[str, str]) -> tuple[Change, ...]:
    return tuple(
        Change(f"{prefix}.{name}", old.get(name, ABSENT), new.get(name, ABSENT))
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    )
