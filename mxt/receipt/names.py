"""What the parts of a receipt are called: stages by their shortest clear name, files below them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mxt.action.action import ActionId, InputRef, OutputRef, SliceRef, SourceRef


def stage_names(target: str, labels: Iterable[str]) -> dict[str, str]:
    """A name for each label: "train" for //recipes:x.train in the receipt of //recipes:x.

    Labels that would share a name take the next longer form, all of them: "gen", "tools/gen", "//tools:gen".
    """
    forms: list[Callable[[str], str]] = [
        lambda label: _last_part(target, label),
        lambda label: label.rpartition(":")[2],
        lambda label: label.rpartition("//")[2].replace(":", "/").lstrip("/"),
        lambda label: label,
    ]
    level = dict.fromkeys(labels, 0)
    while True:
        users: dict[str, list[str]] = {}
        for label, at in level.items():
            users.setdefault(forms[at](label), []).append(label)
        clashing = [label for sharing in users.values() if len(sharing) > 1 for label in sharing]
        if not clashing:
            return {label: forms[at](label) for label, at in level.items()}
        for label in clashing:
            level[label] = min(level[label] + 1, len(forms) - 1)


def _last_part(target: str, label: str) -> str:
    stem = f"{target}."
    return (
        label[len(stem) :] if label.startswith(stem) and len(label) > len(stem) else label.rpartition(":")[2]
    )


def action_name(stages: dict[str, str], identity: ActionId) -> str:
    """stage, or stage/action where a target has several actions."""
    stage = stages[identity.label]
    return f"{stage}/{identity.name}" if identity.name else stage


def origin_form(ref: InputRef) -> dict[str, object]:
    """Where an input came from, as a receipt says it."""
    if isinstance(ref, OutputRef):
        return {"action": [ref.action.label, ref.action.name], "output": ref.output}
    if isinstance(ref, SliceRef):
        return {"source": ref.path, "offset": ref.offset, "length": ref.length, "line": ref.line}
    return {"source": ref.path}


def source_name(ref: SourceRef | SliceRef) -> str:
    """The name of a source among the resolved dependencies; a slice is a part of its file."""
    if isinstance(ref, SliceRef):
        return f"{ref.path}#bytes={ref.offset}-{ref.offset + ref.length}"
    return ref.path
