"""config(path, schema, overrides): a recipe, validated and fully defaulted, errors in the file's terms."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from mxt.errors import LoadError, did_you_mean
from mxt.loading.glob import glob
from mxt.loading.label import Label, quoted
from mxt.loading.overrides import NOWHERE, override, report_overrides
from mxt.loading.reads import Stat, stat_of
from mxt.loading.recipe_yaml import Document, Place, Problem, YamlPath, read_yaml, report
from mxt.loading.rule_modules import Origin, find_schema, import_rule, schema_names
from mxt.loading.workspace import Workspace
from mxt.words import plural

if TYPE_CHECKING:
    from pydantic import BaseModel

# how a sentence begins whose subject is the key
_GOES_ON = ("is ", "are ", "has ", "must ", "needs ", "lacks ", "cannot ", "would ", "names ")
MAX_TEXT = 1 << 20
_NUMBER = re.compile(r"[-+]?[0-9.]+([eE][-+]?[0-9]+)?")


@dataclass(frozen=True, slots=True)
class Config:
    """A validated recipe as JSON text (floats keep their '.0'), and the files that it came from."""

    text: str
    files: dict[str, Stat | None]


def load_config(
    workspace: Workspace,
    package: str,
    path: str,
    schema: str,
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Config:
    """Read path (relative to package, or a label) and check it against `Schema` of rules/<schema>.py.

    overrides: dotted field -> the value that takes the place of the file's.
    Raises LoadError that lists all problems of the file; UsageError where the schema is not trusted.
    """
    label = Label.parse(path, package)
    if label.repo:
        raise LoadError(f"config() reads files of the workspace, not {quoted(path)}")
    full = _recipe_file(workspace, label)
    files: dict[str, Stat | None] = {label.path: stat_of(full)}
    source = find_schema(workspace, schema) if schema.isidentifier() else None
    if source is None or source.path is None:
        near = did_you_mean(schema, schema_names(workspace))
        raise LoadError(
            f"no schema {quoted(schema)} for config(){near}", hint="a schema is a module rules/<schema>.py"
        )
    document = read_yaml(full, label.path)
    module = import_rule(source, workspace, environ)
    model = getattr(module, "Schema", None)
    if not (isinstance(model, type) and hasattr(model, "model_validate")):
        raise LoadError(f"rules/{schema}.py has no Schema", hint="name its pydantic model 'Schema'")
    # helpers that the schema imports lie beside it
    folder = source.path.parent
    root = str(workspace.root).rstrip("/") + "/"
    for neighbour in sorted(
        folder.rglob("*.py") if source.origin is Origin.WORKSPACE else folder.glob("*.py")
    ):
        files[str(neighbour).removeprefix(root)] = stat_of(neighbour)
    if overrides:
        override(document, overrides)
    text = _validated(document, model, schema, overrides or {}, _Package(workspace, package, files))
    return Config(text, files)


@dataclass(frozen=True, slots=True)
class _Package:
    """What a schema's validators may ask of the package, as `info.context["package"]`."""

    workspace: Workspace
    name: str
    read: dict[str, Stat | None]

    def text(self, name: str) -> str | None:
        """What a file of the package says, which the recipe then depends on; None if there is no such text.

        Only for files that are small.
        """
        path = f"{self.name}/{name}".lstrip("/")
        full = self.workspace.root / path
        if not self.files(name) or not full.is_file():
            return None
        self.read[path] = stat_of(full)
        try:
            return full.read_text(encoding="utf-8") if full.stat().st_size <= MAX_TEXT else None
        except (OSError, UnicodeDecodeError):
            return None

    def files(self, pattern: str) -> dict[str, tuple[int, int]]:
        """The files that a pattern of glob() matches, and which file each is, by whatever name.

        Raises ValueError for a pattern that glob() refuses.
        """
        try:
            found = glob(self.workspace, self.name, [pattern], [], allow_empty=True).result
            stats = {name: os.stat(self.workspace.root / self.name / name) for name in found}
        except LoadError as error:
            raise ValueError(f"{error.message}\n{error.hint}") from None
        except OSError:
            return {}
        return {name: (stat.st_dev, stat.st_ino) for name, stat in stats.items()}


def _recipe_file(workspace: Workspace, label: Label) -> Path:
    full = workspace.root / label.path
    if not full.is_file():
        folder = full.parent
        names = os.listdir(folder) if folder.is_dir() else []
        near = did_you_mean(full.name, [n for n in names if n.endswith((".yaml", ".yml"))])
        raise LoadError(f"no file {quoted(label.path)} for config(){near}")
    real = os.path.realpath(full)
    root = str(workspace.root).rstrip("/") + "/"
    if not real.startswith(root) or workspace.excluded(real[len(root) :]):
        raise LoadError(f"{quoted(label.path)} leads out of the workspace, to {quoted(real)}")
    return full


def _validated(
    document: Document, model: type[BaseModel], schema: str, overrides: Mapping[str, Any], package: _Package
) -> str:
    from pydantic import ValidationError

    if not isinstance(document.value, dict):
        what = "is empty" if document.value is None else "must be a mapping of sections"
        raise LoadError(what, where=document.file, hint=f"its sections are in rules/{schema}.py")
    try:
        checked = model.model_validate(document.value, context={"package": package})
        return json.dumps(checked.model_dump(mode="json"), allow_nan=False)
    except ValidationError as problems:
        errors = problems.errors(include_url=False)
        # a list whose items are wrong is not empty
        below = {e["loc"][:-1] for e in errors}
        errors = [e for e in errors if not (e["type"] == "too_short" and e["loc"] in below)]
        found = [_overridden(_problem(document, model, e), overrides) for e in errors]
        if any((p.line, p.column) == NOWHERE for p in found):
            raise report_overrides(document, found, overrides) from None
        raise report(document, found) from None
    except LoadError:
        raise
    except Exception as problem:  # noqa: BLE001 - a validator of the schema itself is at fault
        raise LoadError(
            f"schema {quoted(schema)} failed on this file: {type(problem).__name__}: {problem}",
            where=document.file,
        ) from None


def _overridden(problem: Problem, overrides: Mapping[str, Any]) -> Problem:
    """A problem at a line of the file, with the overrides that it speaks of: the line does not show them."""
    said = f"{problem.message} {problem.hint}"
    named = sorted(o for o in overrides if re.search(rf"\b{re.escape(o.rpartition('.')[2])}\b", said))
    if not named or (problem.line, problem.column) == NOWHERE:
        return problem
    return replace(
        problem, hint="; ".join(filter(None, (problem.hint, f"overridden here: {', '.join(named)}")))
    )


def _problem(document: Document, model: type[BaseModel], error: Any) -> Problem:
    """One pydantic error at the key or value that it is about.

    Of a validator's own message the second line becomes the hint. A schema may know keys by other names:
    `ELSEWHERE`, a mapping from such a name to what to write here.
    """
    kind: str = error["type"]
    path, rest = _path_in_file(document, error["loc"])
    dotted = ".".join(str(p) for p in path)
    if kind == "extra_forbidden" and path:
        key = str(path[-1])
        line, column = document.keys.get(path) or document.values[path]
        fields = _fields(model, error["loc"][:-1])
        elsewhere = getattr(model, "ELSEWHERE", {}).get(key, "") or _same_name(model, key)
        near = "" if elsewhere else did_you_mean(key, fields)
        hint = elsewhere or ("" if near or not fields else "known here: " + ", ".join(fields))
        return Problem(line, column, f"unknown key {quoted(key)}{near}", hint)
    if kind == "missing" and rest and isinstance(rest[0], int):  # of a list of so many items
        message = f"{quoted(dotted)} lacks its item {rest[0] + 1}"
        return Problem(*_key_place(document, path), message)
    if kind == "missing":
        name = ".".join(str(p) for p in rest)
        line, column = _key_place(document, path)
        return Problem(
            line, column, f"{quoted(dotted) if dotted else 'the recipe'} needs the key {quoted(name)}"
        )
    message = error["msg"]
    for prefix in ("Value error, ", "Assertion failed, "):
        message = message.removeprefix(prefix)
    message = message[:1].lower() + message[1:] if message[1:2].islower() else message
    message = _expected(kind, error.get("ctx", {})) or message
    if kind in ("value_error", "assertion_error"):  # the schema's author has said what the value is
        message, _, hint = message.partition("\n")
        place, message = _named_first(document, path, message)
        return Problem(*_key_place(document, place), message, hint)
    value = error.get("input")
    if kind == "model_type":
        inner = _models(model, error["loc"])
        hint = _section(str(path[-1]), inner[0], value) if path and inner else ""
    else:
        hint = _mend(kind, value, error.get("ctx", {}))
    shown = ""
    if isinstance(value, (str, int, float, bool)) or value is None:
        shown = f", not {quoted(value) if isinstance(value, str) else json.dumps(value)}"
    line, column = document.values.get(path, (1, 1))
    colon = "" if message.startswith(_GOES_ON) else ":"
    message = f"{quoted(dotted)}{colon} {message}{shown}" if dotted else f"{message}{shown}"
    return Problem(line, column, message, hint)


def _expected(kind: str, context: Mapping[str, Any]) -> str:
    """What must be there, in the file's words and not in Python's; "" where pydantic says it well."""
    if kind == "tuple_type":
        return "must be a list"  # YAML has no other
    if kind == "model_type":
        return "must be a section with fields"
    if kind == "dict_type":
        return "must be a section of names and values"
    if kind == "string_pattern_mismatch":
        return f"must have the form {context['pattern']}"
    if kind == "too_short":
        at_least, there = context["min_length"], context["actual_length"]
        return f"must have at least {plural(at_least, 'item')}, and has {there or 'none'}"
    if kind == "too_long":
        return (
            f"must have at most {plural(context['max_length'], 'item')}, and has {context['actual_length']}"
        )
    return ""


def _section(key: str, model: type[BaseModel], value: object) -> str:
    """How to write a section, where something else stands for it."""
    fields = model.model_fields
    required = [name for name, field in fields.items() if field.is_required()]
    if value is False:
        return "leave it out"
    if value is True and not required:
        return f"write '{key}: {{}}' for its defaults, or some of its fields: {', '.join(fields)}"
    for name in required or fields:
        if fields[name].annotation is type(value):
            return f"write '{key}: {{{name}: {value}}}'"
    return f"its fields, a line each below it: {', '.join(fields)}"


def _mend(kind: str, value: object, context: Mapping[str, Any]) -> str:
    """What to do about a value of the wrong type; "" where that is plain."""
    if kind == "literal_error" and isinstance(value, str):
        near = did_you_mean(value, re.findall(r"'([^']*)'", str(context.get("expected", ""))))
        return near.removeprefix(", ")
    if kind == "string_type" and isinstance(value, (int, float)):
        return "it is text here: put quotes around it"
    if kind in ("float_type", "int_type") and isinstance(value, str) and _NUMBER.fullmatch(value):
        return f"write it without quotes: {value}"
    if kind == "bool_type" and isinstance(value, str) and value.lower() in ("yes", "on", "no", "off"):
        return "write true or false"
    if kind == "tuple_type" and isinstance(value, (str, int, float)) and not isinstance(value, bool):
        return f"write a list: [{value}]"
    return ""


def _path_in_file(document: Document, location: tuple[str | int, ...]) -> tuple[YamlPath, YamlPath]:
    """The longest part of a pydantic location that the file has, and what comes after it.

    Locations also name union members and the like; those are skipped.
    """
    path: YamlPath = ()
    rest: list[str | int] = []
    for part in location:
        if (*path, part) in document.values:
            path = (*path, part)
            rest.clear()
        else:
            rest.append(part)
    return path, tuple(rest[-1:])


def _named_first(document: Document, path: YamlPath, message: str) -> tuple[YamlPath, str]:
    """The key that a validator's message is about, and the message with that key's whole name.

    A message about a section begins with the key ("gate.task 'x' is ..."); its place is that of what the file
    has of it. One about a value goes on where the key's name ends ("must be even").
    """
    name, _, rest = message.partition(" ")
    named = (*path, *name.strip("'").split("."))
    for end in range(len(named), len(path), -1):
        if named[:end] in document.keys:
            return named[:end], f"{quoted('.'.join(map(str, named)))} {rest}"
    if not path:
        return path, message
    colon = "" if message.startswith(_GOES_ON) else ":"
    return path, f"{quoted('.'.join(map(str, path)))}{colon} {message}"


def _key_place(document: Document, path: YamlPath) -> Place:
    return document.keys.get(path) or document.values.get(path) or (1, 1)


def _fields(model: type[BaseModel], location: tuple[str | int, ...]) -> list[str]:
    """The keys that the schema knows at a location, for suggestions."""
    return list(dict.fromkeys(name for found in _models(model, location) for name in found.model_fields))


def _models(model: type[BaseModel], location: tuple[str | int, ...]) -> list[type[BaseModel]]:
    """The sections that may stand at a location."""
    models = [model]
    for part in location:
        inner: list[type[BaseModel]] = []
        for candidate in models:
            field = candidate.model_fields.get(str(part))
            inner += _models_in(field.annotation) if field is not None else [candidate]
        models = inner
    return models


def _same_name(model: type[BaseModel], key: str) -> str:
    """Where else a key of this name is known: what stands in the wrong section."""
    found = dict.fromkeys(name for name in _dotted(model) if name.rpartition(".")[2] == key)
    return f"there is {' and '.join(map(quoted, found))}" if found else ""


def _dotted(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """All keys of a schema by their whole names, sections too."""
    for name, field in model.model_fields.items():
        yield prefix + name
        for inner in _models_in(field.annotation):
            yield from _dotted(inner, f"{prefix}{name}.")


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and hasattr(annotation, "model_fields"):
        return [annotation]
    return [found for part in get_args(annotation) for found in _models_in(part)]
