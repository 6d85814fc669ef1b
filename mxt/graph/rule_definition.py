"""A Python rule as the engine sees it: its module's declarations, checked once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from mxt.errors import LoadError, UsageError, did_you_mean
from mxt.rule import ConfigMark, LabelMark

if TYPE_CHECKING:
    from mxt.estimates import Asked, Estimate


@dataclass(frozen=True)
class RuleDefinition:
    """name: the function in an MXTBUILD. keyed, unkeyed: dotted recipe fields.

    labels: attributes that hold a label or a list of labels. configs: those that hold a recipe.
    implementation: what stands for the code in the key, {"version": n} or {"digest": hex}.
    estimate: what a target will cost, before it runs; imports its module when it is called.
    """

    name: str
    attrs: Any
    actions: Callable[..., None]
    keyed: tuple[str, ...]
    unkeyed: tuple[str, ...]
    labels: tuple[str, ...]
    configs: tuple[str, ...]
    implementation: Mapping[str, Any]
    test: bool
    effect: bool
    estimate: Callable[[Asked], Estimate] | None = None

    @classmethod
    def of(cls, name: str, module: ModuleType, digest: Callable[[tuple[str, ...]], str]) -> RuleDefinition:
        """Read a module's declarations. digest: BLAKE3 over its code and its DATA files.

        Raises UsageError naming the file and what it lacks.
        """
        path = getattr(module, "__file__", name)
        for needed in ("Attrs", "actions"):
            if not hasattr(module, needed):
                raise UsageError(
                    f"rule '{name}' defines no '{needed}'", where=str(path), hint="see docs/write-a-rule.md"
                )
        version = getattr(module, "VERSION", None)
        fields = module.Attrs.model_fields
        return cls(
            name=name,
            attrs=module.Attrs,
            actions=module.actions,
            keyed=tuple(getattr(module, "KEYED", ())),
            unkeyed=tuple(getattr(module, "UNKEYED", ())),
            labels=tuple(n for n, f in fields.items() if _marked(f, LabelMark)),
            configs=tuple(n for n, f in fields.items() if _marked(f, ConfigMark)),
            implementation={"version": version}
            if version is not None
            else {"digest": digest(tuple(getattr(module, "DATA", ())))},
            test=bool(getattr(module, "TEST", False)),
            effect=bool(getattr(module, "EFFECT", False)),
            estimate=_estimator(name, module),
        )

    def validate(self, name: str, attrs: Mapping[str, Any], where: str) -> Any:
        """The Attrs instance. Raises LoadError listing every attribute that does not fit."""
        import json

        from pydantic import ValidationError

        try:
            return self.attrs.model_validate_json(json.dumps(attrs))
        except ValidationError as error:
            problems = []
            for item in error.errors():
                field = ".".join(str(p) for p in item["loc"])
                if item["type"] == "extra_forbidden":
                    known = ["name", "tags", "toolchain", "platform", *self.attrs.model_fields]
                    problems.append(f"has no attribute '{field}'{did_you_mean(field, known)}")
                elif item["type"] == "missing":
                    problems.append(f"lacks the attribute '{field}'")
                else:
                    problems.append(f"attribute '{field}': {item['msg'].lower()}")
            raise LoadError(f"{self.name} '{name}' " + "; ".join(problems), where=where) from None

    def label_values(self, attrs: Any) -> list[str]:
        """Every label in the attributes, in order of declaration."""
        found: list[str] = []
        for field in self.labels:
            value = getattr(attrs, field)
            if isinstance(value, str):
                found.append(value)
            elif isinstance(value, Mapping):
                found.extend(value.values())
            elif isinstance(value, Iterable):
                found.extend(value)
        return found

    def project(self, attrs: Any, fields: tuple[str, ...], where: str) -> Projection:
        """The recipe fields that this rule declared, by dotted name."""
        values: dict[str, Any] = {}
        for config in self.configs:
            recipe = getattr(attrs, config) or {}
            for field in fields:
                values[field] = _look_up(recipe, field, self.name, where)
        return Projection(values, self.name, where)


class Projection(dict[str, Any]):
    """Declared recipe fields; reading another one says that it must be declared."""

    def __init__(self, values: Mapping[str, Any], rule: str, where: str) -> None:
        super().__init__(values)
        self._rule = rule
        self._where = where

    def __missing__(self, field: str) -> Any:
        raise LoadError(
            f"rule '{self._rule}' reads the recipe field '{field}' without declaring it",
            where=self._where,
            hint=f"add '{field}' to KEYED or UNKEYED in the rule",
        )


def _estimator(name: str, module: ModuleType) -> Callable[[Asked], Estimate] | None:
    """The function `estimate` of the module that a rule names as ESTIMATE; None without one."""
    named = getattr(module, "ESTIMATE", None)
    if named is None:
        return None
    full = f"{module.__name__.rpartition('.')[0]}.{named}"

    def estimate(asked: Asked) -> Estimate:
        import importlib

        try:
            function = importlib.import_module(full).estimate
        except (ImportError, AttributeError, SyntaxError) as error:
            raise UsageError(
                f"rule '{name}' names ESTIMATE = '{named}', which cannot be used: {error}",
                where=str(module.__file__),
                hint="name a module of the rule's folder that defines estimate(asked)",
            ) from None
        found: Estimate = function(asked)
        return found

    return estimate


def _marked(field: Any, mark: type) -> bool:
    return (
        mark in field.metadata
        or any(isinstance(m, mark) for m in field.metadata)
        or _inside(field.annotation, mark)
    )


def _inside(annotation: Any, mark: type) -> bool:
    """Whether a mark hides deeper, as in `Label | None`."""
    import typing

    if any(m is mark or isinstance(m, mark) for m in getattr(annotation, "__metadata__", ())):
        return True
    return any(_inside(a, mark) for a in typing.get_args(annotation))


def _look_up(recipe: Mapping[str, Any], field: str, rule: str, where: str) -> Any:
    value: Any = recipe
    for part in field.split("."):
        if value is None:
            return None
        if not isinstance(value, Mapping) or part not in value:
            raise LoadError(
                f"rule '{rule}' declares the recipe field '{field}', which the recipe's schema does not have",
                where=where,
            )
        value = value[part]
    return value
