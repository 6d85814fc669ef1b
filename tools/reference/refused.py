"""Which values of a recipe's fields parse and do not build yet: asked of the rules' own refusals."""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from mxt.rule import Refusal
from reference.declared import rule_modules
from reference.markdown import code, table
from rules import _refusals
from rules.recipe import Schema

Check = Callable[[Mapping[str, Any]], Refusal | None]


def section() -> list[str]:
    """The lines of the reference's last section."""
    found: dict[str, list[str]] = {}
    fields = dict(_choices(Schema, ""))
    base = {name: _usual(values, many) for name, (values, many) in fields.items()} | _OTHERS
    for name, (values, many) in fields.items():
        for value in values:
            config = {**base, name: (value,) if many else value}
            if any(check(config) for check in _checks()):
                found.setdefault(name, []).append(code(value))
    rows = [(code(name), " ".join(values)) for name, values in found.items()]
    rows.append((code("data.dedupe.semdedup"), "the section"))
    rows.append((code("hardware.platform"), "every GPU: all but fetching, preparing rows and the gate"))
    whole = [name for name, module in rule_modules().items() if getattr(module, "EFFECT", False)]
    stages = ", ".join(code(f".{name}") for name in whole)
    return [
        "## What does not build yet",
        "",
        "These parse, have keys and are shown by `mxt build -n` (`absent`); a build says so at once.",
        f"So it is with {stages}.",
        "",
        *table(("field", "not yet"), rows),
    ]


# what the refusals look at beside choices: a recipe for a CPU that builds
_OTHERS: dict[str, Any] = {"hardware.gpus": 0, "eval.revisions": {}}


def _checks() -> list[Check]:
    modules = rule_modules()
    checks: list[Check] = [_refusals.training, _refusals.rows]
    checks += [lambda config: modules["evaluate"]._refusal(config, "//:x"), modules["quantize"]._refusal]
    return [*checks, modules["probe"]._beyond]


def _usual(values: tuple[str, ...], many: bool) -> Any:
    """The value that builds: the first, as schemas list them."""
    return (values[0],) if many else values[0]


def _choices(model: type[BaseModel], path: str) -> Iterator[tuple[str, tuple[tuple[str, ...], bool]]]:
    """Dotted field -> its possible values, the default first, and whether it takes a list of them."""
    for name, field in model.model_fields.items():
        for inner in _models(field.annotation):
            yield from _choices(inner, f"{path}{name}.")
        values, many = _literals(field.annotation, many=False)
        if values:
            default = field.default[0] if many and isinstance(field.default, tuple) else field.default
            first = (default,) if default is not PydanticUndefined and default is not None else ()
            yield f"{path}{name}", (tuple(dict.fromkeys([*first, *values])), many)


def _literals(annotation: Any, *, many: bool) -> tuple[tuple[str, ...], bool]:
    if typing.get_origin(annotation) is typing.Literal:
        return typing.get_args(annotation), many
    for part in typing.get_args(annotation):
        found = _literals(part, many=many or typing.get_origin(annotation) is tuple)
        if found[0]:
            return found
    return (), many


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        return
    for part in typing.get_args(annotation):
        yield from _models(part)
