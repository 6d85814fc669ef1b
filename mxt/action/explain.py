"""What differs between two action forms, field by field."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from mxt.action.canonical import FLOAT_TAG

ABSENT = "(absent)"


# no name holds it: "inputs.x.path" may also be the input "x.path"
_PATH = "\0path"


class Change(NamedTuple):
    """field: dotted path into the action form. old, new: JSON text, or "(absent)"."""

    field: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.field}: {self.old} -> {self.new}"


def compare(old: dict[str, Any], new: dict[str, Any]) -> list[Change]:
    """Every field in which two forms differ, sorted by field; empty means equal keys."""
    before, after = dict(_flatten("", old)), dict(_flatten("", new))
    changes = []
    for name in sorted(before.keys() | after.keys()):
        was, now = before.get(name, ABSENT), after.get(name, ABSENT)
        # where an input that came or went would have lain says nothing more
        if was != now and not (name.endswith(_PATH) and ABSENT in (was, now)):
            changes.append(Change(name.replace(_PATH, ".path"), was, now))
    return changes


def _flatten(prefix: str, value: Any) -> Iterator[tuple[str, str]]:
    """Leaves as (field, text). An input is one leaf: its digest says all that its parts would."""
    if isinstance(value, dict) and FLOAT_TAG in value:
        yield prefix, value[FLOAT_TAG]
    elif isinstance(value, dict) and prefix.startswith("inputs.") and "digest" in value:
        executable = " (executable)" if value["executable"] else ""
        yield prefix, f"{value['kind']} {value['digest']}{executable}"
        yield prefix + _PATH, value["path"]
    elif isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _flatten(f"{prefix}.{key}" if prefix else key, item)
    elif value != {} or "." in prefix:  # every form has inputs, params and so on; an empty one is no field
        yield prefix, _text(value)


def _text(value: Any) -> str:
    import json

    return json.dumps(value, ensure_ascii=False, sort_keys=True)
