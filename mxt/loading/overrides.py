"""Fields that a macro puts into a parsed recipe before the schema looks at it: a sweep's members.

`config("x.yaml", "recipe", {"train.lr": 1e-4})` is the recipe as if its author had written that value there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mxt.errors import LoadError
from mxt.loading.label import quoted
from mxt.loading.recipe_yaml import Document, Problem, YamlPath

# where an overridden field stands: nowhere in the file
NOWHERE = (0, 0)


def override(document: Document, overrides: Mapping[str, Any]) -> None:
    """Put each value at its dotted field; sections on the way are made. Raises LoadError."""
    paths = {name: tuple(name.split(".")) for name in overrides}
    for name, path in paths.items():
        if not all(path):
            raise LoadError(f"override {quoted(name)} is no field", hint='name it as in {"train.lr": 1e-4}')
        for other, longer in paths.items():
            if longer[: len(path)] == path and other != name:
                raise LoadError(f"overrides {quoted(name)} and {quoted(other)} set the same field twice")
    if document.value is None and overrides:
        document.value = {}
    for name, path in paths.items():
        _put(document, name, path, overrides[name])


def _put(document: Document, name: str, path: YamlPath, value: Any) -> None:
    node = document.value
    for depth, part in enumerate(path[:-1], 1):
        if not isinstance(node, dict):
            break
        if node.get(part) is None:  # an absent section
            node[part] = {}
            document.keys[path[:depth]] = document.values[path[:depth]] = NOWHERE
        node = node[part]
    if not isinstance(node, dict):
        above = ".".join(str(p) for p in path[:-1])
        raise LoadError(
            f"override {quoted(name)}: {quoted(above)} of {document.file} has no fields of its own",
            hint="a list or a value is overridden as a whole",
        )
    node[path[-1]] = value
    for known in (document.keys, document.values):
        for below in [p for p in known if p[: len(path)] == path]:
            del known[below]
    _everywhere(document, path, value)


def _everywhere(document: Document, path: YamlPath, value: Any) -> None:
    """Note that path, and all below it, stands nowhere in the file."""
    document.keys[path] = document.values[path] = NOWHERE
    if isinstance(value, (dict, list)):
        for part, item in value.items() if isinstance(value, dict) else enumerate(value):
            _everywhere(document, (*path, part), item)


def report_overrides(document: Document, problems: list[Problem], overrides: Mapping[str, Any]) -> LoadError:
    """The error for problems of overridden fields, which no line of the file shows."""
    found = [p for p in problems if (p.line, p.column) == NOWHERE]
    hints = [p.hint for p in found if p.hint]
    message = f"{document.file} with overrides: " + "; ".join(p.message for p in found)
    return LoadError(message, hint=hints[0] if hints else "overridden here: " + ", ".join(sorted(overrides)))
