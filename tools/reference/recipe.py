"""docs/reference/recipe.md: every section and field of a recipe, and whose key it is in."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from reference import refused
from reference.declared import Declared, declared
from reference.markdown import cell, code, document, head, sentence, table
from rules.recipe import Schema

INTRO = """
A recipe is one YAML file. `finetune()` makes a target of each of its stages; a section that is absent makes
none. Unknown keys, values of another type and settings that contradict each other are errors that show the
line. How to write one: [write a recipe](../write-a-recipe.md).

**in the key of** names the stages that run again when the field changes (and what reads their results, if
these differ then). *no key* are fields that may touch evidence and progress only. *files* are globs or paths:
what is keyed is the content of the files, in every stage that reads them.
"""
# Read by finetune.mxt, which turns them into targets, inputs and platforms: no rule declares them.
BY_THE_MACRO = {
    "hardware.platform": "every stage on the device, by the platform's properties",
    "model.init.corpus": "*files*",
    "model.path": "*files*",
    "data.files": "*files*",
    "data.chat_template": "*files*",
    "eval.files": "*files*",
    "publish.card": "*files*",
}
# Of those that rules declare, what the macro passes to one more stage as an attribute.
PASSED_ON = {"hardware.gpus": ".quark_extension", "hardware.env": ".quark_extension"}
# In no key, and yet more than evidence.
SPLITS = {"data.rows_per_shard": "what an action of `.shards` and `.pack` covers: all of them are made anew"}


def page() -> str:
    """Raises KeyError for a field that no rule declares and finetune.mxt is not known to read."""
    lines = head("Recipe", INTRO)
    lines += ["| section | |", "|---|---|"]
    for name, field in Schema.model_fields.items():
        models = _models(field.annotation)
        needed = " **Required.**" if field.is_required() else ""
        lines.append(f"| [{name}](#{name}) | {cell(_doc(models[-1]))}{needed} |")
    lines.append("")
    known = declared()
    for name, field in Schema.model_fields.items():
        lines += _section(name, field, known, 2)
    return document([*lines, *refused.section()])


def _section(path: str, field: FieldInfo, known: Declared, level: int) -> list[str]:
    models = _models(field.annotation)
    model = models[-1]  # of several shapes the last is the plain one
    lines = ["#" * level + " " + path, "", sentence(_doc(model)) + _when_absent(field, level), ""]
    lines += table(
        ("field", "value", "meaning", "in the key of"),
        [_row(path, name, f, known) for name, f in model.model_fields.items() if not _models(f.annotation)],
    )
    if len(models) > 1:
        lines += _shapes(models)
    for name, inner in model.model_fields.items():
        if _models(inner.annotation):
            lines += _section(f"{path}.{name}", inner, known, 3)
    return lines


def _when_absent(field: FieldInfo, level: int) -> str:
    if level == 2:
        return ""
    said = (field.description or "").strip()
    needed = "Required." if field.is_required() else "Optional."
    return f" {needed}" + (f" {sentence(said)}" if said else "")


def _shapes(models: list[type[BaseModel]]) -> list[str]:
    """What the shapes of a section say otherwise than the plain one."""
    plain = models[-1]
    lines = ["The [device](../devices.md) that `platform` names decides which values are allowed:", ""]
    for model in models[:-1]:
        different = [
            f"{code(name)}: {cell(field.description or '')}"
            for name, field in model.model_fields.items()
            if field.description != plain.model_fields[name].description
        ]
        lines.append(f"- {sentence(_doc(model))}" + (f" {'; '.join(different)}." if different else ""))
    return [*lines, ""]


def _row(section: str, name: str, field: FieldInfo, known: Declared) -> tuple[str, ...]:
    dotted = f"{section}.{name}"
    keyed, unkeyed = known.keyed.get(dotted, []), known.unkeyed.get(dotted, [])
    if keyed:
        reads = " ".join(keyed)
        if dotted in PASSED_ON:
            reads = f"{code(PASSED_ON[dotted])} {reads}"
    elif dotted in SPLITS:
        reads = f"*no key*: {SPLITS[dotted]}"
    elif unkeyed:
        reads = f"*no key* ({' '.join(unkeyed)})"
    else:
        reads = BY_THE_MACRO[dotted]
    return code(name), _value(field), field.description or "", reads


def _value(field: FieldInfo) -> str:
    """Type, bounds and default, as in "whole number > 0; default 16"."""
    kind = _kind(field.annotation, field.metadata)
    if field.is_required():
        return f"{kind}; **required**"
    default = field.default
    if default is PydanticUndefined or default is None:
        made = field.get_default(call_default_factory=True) if default is PydanticUndefined else None
        return f"{kind}; default {_shown(made)}" if made else f"{kind}; optional"
    return f"{kind}; default {_shown(default)}"


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return code(value) if value else "empty"
    if isinstance(value, tuple):
        return code("[" + ", ".join(v if isinstance(v, str) else json.dumps(v) for v in value) + "]")
    if isinstance(value, dict):
        return "empty" if not value else f"{len(value)} of them"
    return code(json.dumps(value))


def _kind(annotation: Any, metadata: typing.Iterable[Any] = ()) -> str:
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        inner = [m for a in args[1:] for m in (a.metadata if isinstance(a, FieldInfo) else [a])]
        return _kind(args[0], [*inner, *metadata])
    if origin in (typing.Union, types.UnionType):
        return _kind(next(a for a in args if a is not type(None)), metadata)
    if origin is typing.Literal:
        return " · ".join(code(str(a)) for a in args)
    if origin is tuple:
        if args[-1] is Ellipsis:
            return f"list of {_plural(_kind(args[0]))}"
        return f"{len(args)} {_plural(_kind(args[0]))}"
    if origin is dict:
        return "names with text"
    word = {int: "whole number", float: "number", str: "text", bool: "`true` · `false`"}[annotation]
    return word + _bounds(metadata)


def _plural(kind: str) -> str:
    if "`" in kind:
        return kind
    return {"text": "texts"}.get(kind, kind.replace("number", "numbers", 1))


def _bounds(metadata: typing.Iterable[Any]) -> str:
    found = []
    for sign, name in ((">", "gt"), ("≥", "ge"), ("<", "lt"), ("≤", "le")):
        for item in metadata:
            limit = getattr(item, name, None)
            if limit is not None:
                found.append(f"{sign} {limit:g}" if abs(limit) < 1e6 else f"{sign} {limit:,}")
    return f" {', '.join(found)}" if found else ""


def _doc(model: type[BaseModel]) -> str:
    return " ".join((model.__doc__ or "").split())


def _models(annotation: Any) -> list[type[BaseModel]]:
    return list(_find(annotation))


def _find(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        return
    for part in typing.get_args(annotation):
        yield from _find(part)
