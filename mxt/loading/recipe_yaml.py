"""Recipe YAML: 1.2 core types, nothing ambiguous, and the position of every key and value kept."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mxt.action.canonical import MAX_INTEGER
from mxt.errors import LoadError
from mxt.loading.excerpt import excerpt
from mxt.loading.label import quoted
from mxt.loading.nesting import position

MAX_BYTES = 1 << 20
MAX_DEPTH = 64
MAX_PROBLEMS = 50

# keys and list indices from the document's top
YamlPath = tuple[str | int, ...]
Place = tuple[int, int]  # line, column, from 1

_NULL = re.compile(r"null|Null|NULL|~|")
_BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")
_INTEGER = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_FORBIDDEN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]|\r(?!\n)")


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong in a file, at line and column (from 1)."""

    line: int
    column: int
    message: str
    hint: str = ""


@dataclass(slots=True)
class Document:
    """A parsed file. keys and values: where each stands, by path; () is the whole document."""

    file: str
    source: str
    value: Any = None
    keys: dict[YamlPath, Place] = field(default_factory=dict)
    values: dict[YamlPath, Place] = field(default_factory=dict)


def read_yaml(path: Path, shown: str) -> Document:
    """The file at path, called `shown` in errors; raises LoadError with every problem found."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as problem:
        raise LoadError(f"cannot read {quoted(shown)}: {problem.strerror}", where=shown) from None
    return parse_yaml(data, shown)


def parse_yaml(data: bytes, shown: str) -> Document:
    """The document in data. value is None for an empty one; keys are text; floats are finite."""
    if len(data) > MAX_BYTES:
        raise LoadError(
            f"is larger than {MAX_BYTES >> 20} MiB", where=shown, hint="a recipe is a page: name data files"
        )
    try:
        source = data.decode("utf-8")
    except UnicodeDecodeError as problem:
        before = data[: problem.start].decode("utf-8", "replace")
        line, column = position(before, len(before))
        raise LoadError("is not UTF-8", where=f"{shown}:{line}:{column}", hint="save it as UTF-8") from None
    source = source.removeprefix("\ufeff")
    document = Document(shown, source)
    bad = _FORBIDDEN.search(source)
    if bad:
        line, column = position(source, bad.start())
        message = f"character U+{ord(bad.group()[0]):04X} may not stand in YAML as it is"
        raise report(document, [Problem(line, column, message, 'write it in double quotes, as "\\u...."')])
    reader = _Reader(document)
    reader.read()
    if reader.problems:
        raise report(document, reader.problems)
    return document


def report(document: Document, problems: list[Problem]) -> LoadError:
    """One error that shows all problems, in the order of the file."""
    problems = sorted(problems, key=lambda p: (p.line, p.column))
    first, others = problems[0], problems[1:MAX_PROBLEMS]
    shown = excerpt(document.source, first.line, first.column)
    if others and first.hint:
        shown += f"\n  hint: {first.hint}"
    for problem in others:
        single = LoadError(
            problem.message,
            where=f"{document.file}:{problem.line}:{problem.column}",
            excerpt=excerpt(document.source, problem.line, problem.column),
            hint=problem.hint,
        )
        shown += f"\n{single}"
    if len(problems) > MAX_PROBLEMS:
        shown += f"\n... and {len(problems) - MAX_PROBLEMS} more"
    return LoadError(
        first.message,
        where=f"{document.file}:{first.line}:{first.column}",
        excerpt=shown,
        hint="" if others else first.hint,
    )


class _StopError(Exception):
    """Nothing sensible can be read after this problem."""


class _Reader:
    """Builds values from the event stream; never follows an alias, so size bounds the work."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.problems: list[Problem] = []

    def read(self) -> None:
        import yaml

        loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
        self.events: Any = yaml.parse(self.document.source, Loader=loader)
        try:
            self._documents(yaml)
        except yaml.MarkedYAMLError as problem:
            self._syntax(problem)
        except yaml.YAMLError as problem:
            self._note(1, 1, f"not valid YAML: {problem}".partition("\n")[0])
        except _StopError:
            pass

    def _syntax(self, problem: Any) -> None:
        mark, began = problem.problem_mark, problem.context_mark
        message = problem.problem or problem.context or "cannot be parsed"
        # what is never closed is noticed at the end of the file, but wrong where it begins
        if began is not None and (mark is None or mark.index >= len(self.document.source.rstrip())):
            mark, message = began, f"{_bare(problem.context)} never ends"
        line, column = (1, 1) if mark is None else (mark.line + 1, mark.column + 1)
        self._note(line, column, *_wording(message))

    def _note(self, line: int, column: int, message: str, hint: str = "") -> None:
        self.problems.append(Problem(line, column, message, hint))

    def _flag(self, event: Any, message: str, hint: str = "") -> None:
        self._note(event.start_mark.line + 1, event.start_mark.column + 1, message, hint)

    def _documents(self, yaml: Any) -> None:
        documents = 0
        for event in self.events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    self._flag(
                        event, "a second document begins here", "one file holds one recipe: remove '---'"
                    )
                    raise _StopError
                if event.version or event.tags:
                    self._flag(event, "YAML directives (%YAML, %TAG) are not supported", "remove the line")
            elif isinstance(event, (yaml.ScalarEvent, yaml.CollectionStartEvent, yaml.AliasEvent)):
                self.document.value = self._node(yaml, event, (), 1)

    def _node(self, yaml: Any, event: Any, path: YamlPath, depth: int) -> Any:
        self.document.values[path] = (event.start_mark.line + 1, event.start_mark.column + 1)
        if isinstance(event, yaml.AliasEvent):
            self._flag(event, f"aliases (*{event.anchor[:50]}) are not supported", "write the value out")
            return None
        if event.anchor is not None:
            self._flag(
                event,
                f"anchors (&{event.anchor[:50]}) are not supported",
                "write values out where they are used",
            )
        if event.tag is not None and event.tag != "":
            self._flag(event, f"tags ({quoted(event.tag, 50)[1:-1]}) are not supported", "remove the tag")
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event)
        if depth > MAX_DEPTH:
            self._flag(event, f"is nested more than {MAX_DEPTH} deep")
            raise _StopError
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(yaml, path, depth)
        return self._mapping(yaml, path, depth)

    def _sequence(self, yaml: Any, path: YamlPath, depth: int) -> list[Any]:
        items: list[Any] = []
        for event in self.events:
            if isinstance(event, yaml.SequenceEndEvent):
                break
            items.append(self._node(yaml, event, (*path, len(items)), depth + 1))
        return items

    def _mapping(self, yaml: Any, path: YamlPath, depth: int) -> dict[str, Any]:
        items: dict[str, Any] = {}
        for event in self.events:
            if isinstance(event, yaml.MappingEndEvent):
                break
            key = self._key(yaml, event, path, depth)
            place = (event.start_mark.line + 1, event.start_mark.column + 1)
            if key in items:
                first = self.document.keys[(*path, key)]
                self._flag(
                    event, f"duplicate key {quoted(key)}, first given on line {first[0]}", "keep one of them"
                )
                key = f"{key}\0{place}"  # read on, without losing the first
            self.document.keys[(*path, key)] = place
            items[key] = None
            items[key] = self._node(yaml, next(self.events), (*path, key), depth + 1)
        return items

    def _key(self, yaml: Any, event: Any, path: YamlPath, depth: int) -> str:
        if not isinstance(event, yaml.ScalarEvent):
            self._flag(event, "a key must be text", "'{' and '[' begin a value; put quotes around text")
            raise _StopError
        if not event.style and event.value == "<<":
            self._flag(event, "merge keys (<<) are not supported", "write the values out")
        value = self._node(yaml, event, (*path, "\0key"), depth)
        if not isinstance(value, str):
            self._flag(
                event, f"the key {quoted(event.value)} must be text", f'put quotes around it: "{event.value}"'
            )
            return f"{event.value}\0{event.start_mark.index}"
        return value

    def _scalar(self, event: Any) -> Any:
        text: str = event.value
        if event.style:  # quoted or block text
            return text
        if _NULL.fullmatch(text):
            return None
        if _BOOL.fullmatch(text):
            return text[0] in "tT"
        if _INTEGER.fullmatch(text) or _OCTAL.fullmatch(text) or _HEXADECIMAL.fullmatch(text):
            base = 8 if text.startswith("0o") else 16 if text.startswith("0x") else 10
            # more digits than any integer allowed; int() itself refuses thousands of them
            value = int(text, base) if len(text.lstrip("+-0ox")) < 40 else MAX_INTEGER + 1
            if abs(value) > MAX_INTEGER:
                self._flag(event, "an integer beyond 2^53 has no exact form in JSON", "put quotes around it")
                return 0
            return value
        if _FLOAT.fullmatch(text):
            number = float(text)
            if not math.isfinite(number):
                self._flag(event, f"{quoted(text)} is too large for a float")
                return 0.0
            return number
        if _NOT_FINITE.fullmatch(text):
            self._flag(event, f"{text} is not a finite number", "leave the key out, or give a number")
            return 0.0
        return text


def _bare(context: str | None) -> str:
    return (context or "this").removeprefix("while parsing ").removeprefix("while scanning ")


def _wording(problem: str) -> tuple[str, str]:
    """libyaml's message, and what to do, where we know."""
    if "cannot start any token" in problem:
        return (
            f"not valid YAML: {problem}",
            "a tab? indent with spaces; put quotes around text that begins with @, ` or %",
        )
    if "found a tab character" in problem:
        return "not valid YAML: a tab", "indent with spaces"
    if "mapping values are not allowed" in problem:
        return (
            "not valid YAML: ':' begins a value here",
            "indent by the same number of spaces, or put quotes around the text",
        )
    if "could not find expected ':'" in problem:
        return "not valid YAML: ':' is missing after a key", "write 'key: value'"
    return f"not valid YAML: {problem}", ""
