"""Starlark's own errors in mxt's form: `MXTBUILD:3:5: unknown rule 'fintune', did you mean 'finetune'?`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from mxt.errors import LoadError, MxtError, did_you_mean
from mxt.loading.excerpt import excerpt
from mxt.loading.nesting import nesting

PRELUDE = "<builtin>"
# every file is evaluated with one line put before it, which loads the built-in names
SHIFT = 1

_FRAME = re.compile(r"^  \* (.*):(\d+), in (.*)$", re.MULTILINE)
_PLACE = re.compile(r"^ *--> (.*):(\d+):(\d+)$", re.MULTILINE)
_SUGGESTION = re.compile(r", did you mean `(.*?)`\?$")
_STANDARD = [
    "None",
    "True",
    "False",
    "abs",
    "all",
    "any",
    "bool",
    "chr",
    "dict",
    "dir",
    "enumerate",
    "fail",
    "float",
    "getattr",
    "hasattr",
    "hash",
    "int",
    "len",
    "list",
    "max",
    "min",
    "ord",
    "range",
    "repr",
    "reversed",
    "sorted",
    "str",
    "struct",
    "tuple",
    "type",
    "zip",
    "json",
]


class Frame(NamedTuple):
    """One call on the way: file and line (as the user counts) where `function` is running."""

    file: str
    line: int
    function: str


def frames_of(stack: str) -> list[Frame]:
    """The frames of a Starlark traceback, outermost first, without mxt's own."""
    return [Frame(f, int(n) - SHIFT, name) for f, n, name in _FRAME.findall(stack) if f != PRELUDE]


def call_column(text: str, callee: str) -> int:
    """The column where a line of source calls callee; Starlark's frames tell the line only."""
    at = text.find(callee + "(")
    if at < 0 or (at and (text[at - 1].isalnum() or text[at - 1] in "_.")):
        found = re.search(rf"(?<![\w.]){re.escape(callee)}\s*\(", text)
        at = found.start() if found else len(text) - len(text.lstrip())
    return at + 1


def line_of(source: str, line: int) -> str:
    """Line `line` (from 1) of source, "" where there is none."""
    lines = source.split("\n", line)
    return lines[line - 1] if 1 <= line <= len(lines) else ""


def translate(
    text: str,
    sources: Mapping[str, str],
    names: Iterable[str],
    macros: Iterable[str],
    pending: MxtError | None = None,
    limit: str = "",
) -> LoadError:
    """The error for Starlark's message `text`.

    sources: content by file name. names: built-in names of the file. macros: stems of the
    built-in .mxt files. pending: the error that one of mxt's own functions raised to stop the
    evaluation. limit: the time allowed, in words.
    """
    names = set(names)
    frames, callee = _split_frames(text)
    places = list(_PLACE.finditer(text))
    body = text[: places[-1].start()] if places else text
    raw = body.rpartition("\nerror: ")[2] if "\nerror: " in body else body.removeprefix("error: ")
    raw = raw.strip()
    file, line, column = "", 0, 0
    if places:
        file, line, column = places[-1][1], int(places[-1][2]) - SHIFT, int(places[-1][3])
    if file not in sources or file == PRELUDE:
        if frames:
            file, line = frames[-1].file, frames[-1].line
            column = call_column(line_of(sources.get(file, ""), line), callee)
        elif pending is None and file == PRELUDE:
            file = ""
    source = sources.get(file, "")
    if pending is not None:
        message, hint = pending.message, pending.hint
        if pending.where:
            return LoadError(message, where=pending.where, hint=hint, excerpt=pending.excerpt)
    else:
        if line < 1 or (
            raw.startswith("Parse error: unexpected new line") and not line_of(source, line).strip()
        ):
            line, column = _end_of(source)
        message, hint, line, column = _message(raw, source, line, column, names, macros, limit)
    shown = excerpt(source, line, column) if line else ""
    outer = frames[0] if len(frames) > 1 or (frames and frames[0].file != file) else None
    if outer is not None and (outer.file, outer.line) != (file, line):
        shown += f"\n    called from {outer.file}:{outer.line}"
    where = f"{file}:{line}:{column}" if line else file
    return LoadError(message, where=where, hint=hint, excerpt=shown)


def _split_frames(text: str) -> tuple[list[Frame], str]:
    """The user's frames, and the function of mxt's that the last of them called."""
    head = text.partition("\nerror: ")[0]
    if not head.startswith("Traceback"):
        return [], ""
    own = [name for file, _, name in _FRAME.findall(head) if file == PRELUDE]
    return frames_of(head), own[0] if own else ""


def _end_of(source: str) -> tuple[int, int]:
    lines = source.rstrip("\n").split("\n")
    return len(lines), len(lines[-1]) + 1


def _message(
    raw: str, source: str, line: int, column: int, names: set[str], macros: Iterable[str], limit: str
) -> tuple[str, str, int, int]:
    """Message, hint and place for one raw message."""
    if raw.startswith("Parse error: "):
        return _syntax(raw.removeprefix("Parse error: "), source, line, column)
    found = re.match(r"Variable `(.*?)` not found", raw)
    if found:
        message, hint = _unknown(found[1], source, line, column, names, macros)
        return message, hint, line, column
    if raw == "Evaluation cancelled":
        hint = "an endless loop? else raise MXT_LOAD_TIMEOUT (seconds)"
        return f"evaluation takes longer than {limit}", hint, line, column
    if "call stack overflow" in raw:
        return "recursion is too deep", "Starlark has no use for recursion: write a loop", line, column
    found = re.search(r"`serde::serialize` not supported on type `(.*?)`", raw)
    if found:
        message = f"a {found[1]} cannot be the value of an attribute"
        return (
            message,
            "attributes are text, numbers, booleans, None, and lists and dicts of them",
            line,
            column,
        )
    if raw == "key must be a string":
        return "a dict in an attribute has a key that is not text", "keys must be text", line, column
    if "Cycle detected" in raw:
        return "a value that contains itself cannot be the value of an attribute", "", line, column
    found = re.match(r"Missing (?:named-only )?parameter `(.*?)` for call to `?(.*?)`?$", raw)
    if found:
        return f"{_function(found[2])}() needs the parameter '{found[1]}'", "", line, column
    found = re.match(r"Found (.*?) extra named parameter\(s\) for call to (.*)$", raw)
    if found:
        extra = found[1].replace("`", "'")
        return f"{_function(found[2])}() has no parameter {extra}", "", line, column
    found = re.match(r"Found (\d+) extra positional argument\(s\) for call to (.*)$", raw)
    if found:
        return f"{_function(found[2])}() takes fewer positional arguments", "", line, column
    found = re.match(r"`(for|if)` cannot be used outside `def`", raw)
    if found:
        hint = "write a list: [f(x) for x in list], or a macro in a .mxt file" if found[1] == "for" else ""
        return f"'{found[1]}' stands outside a function", hint or "write: x if condition else y", line, column
    if raw.startswith("fail: "):
        return raw.removeprefix("fail: "), "", line, column
    return _plain(raw), "", line, column


def _syntax(raw: str, source: str, line: int, column: int) -> tuple[str, str, int, int]:
    message = raw.partition(", expected one of")[0].removesuffix(" here")
    if message == "tabs are not allowed":
        if "\t" not in line_of(source, line):  # told at the end of the line before
            line += 1
        return message, "indent with spaces", line, line_of(source, line).find("\t") + 1 or column
    if message.startswith(("unexpected new line", "unexpected end")):
        left = nesting(source)
        if left.unclosed:
            return f"'{left.unclosed}' is never closed", "", left.unclosed_line, left.unclosed_column
        return "the statement ends too early", "", line, column
    if message.startswith("cannot use reserved keyword"):
        word = message.split("`")[1] if "`" in message else ""
        hint = (
            'write load("//package:file.mxt", "name")' if word in ("import", "from") else "this is Starlark"
        )
        return f"'{word}' is a reserved word", hint, line, column
    if message.startswith("unexpected new indentation block"):
        return "unexpected indentation", "", line, column
    if "expected one of" in raw and "INDENT" in raw:
        return "an indented block is missing", "", line, column
    left = nesting(source)
    open_before = left.unclosed and (left.unclosed_line, left.unclosed_column) < (line, column)
    hint = (
        f"'{left.unclosed}' at {left.unclosed_line}:{left.unclosed_column} is not closed"
        if open_before
        else ""
    )
    return f"syntax error: {_plain(message)}", hint, line, column


def _unknown(
    name: str, source: str, line: int, column: int, names: set[str], macros: Iterable[str]
) -> tuple[str, str]:
    called = line_of(source, line)[column - 1 + len(name) :].lstrip().startswith("(")
    own = set(re.findall(r"^(?:def\s+)?(\w+)\s*(?:=(?!=)|\()", source, re.MULTILINE)) - {name}
    own = {n for n in own if re.search(rf"^(?:def\s+{n}\b|{n}\s*=[^=])", source, re.MULTILINE)}
    for loaded in re.findall(r"^load\((.*?)\)", source, re.MULTILINE | re.DOTALL):
        own.update(re.findall(r"[\"'](\w+)[\"']", loaded))
        own.update(re.findall(r"(\w+)\s*=", loaded))
    known = names | own | set(_STANDARD)
    kind = "rule" if called else "name"
    macros = set(macros) - known
    if name in macros:
        return f"unknown {kind} '{name}'", _load_first(name)
    suggestion = did_you_mean(name, sorted(known | macros))
    macro = suggestion.split("'")[1] if suggestion else ""
    return f"unknown {kind} '{name}'{suggestion}", _load_first(macro) if macro in macros else ""


def _load_first(macro: str) -> str:
    return f'put this first: load("@mxt//rules:{macro}.mxt", "{macro}")'


def _function(name: str) -> str:
    return name.strip("`").rpartition(".")[2]


def _plain(raw: str) -> str:
    """Starlark's wording in ours: single quotes, lower case, no suggestion that is not near."""
    found = _SUGGESTION.search(raw)
    tail = ""
    if found:
        raw = raw[: found.start()]
        quoted = re.findall(r"`(.*?)`", raw)
        tail = did_you_mean(quoted[-1], [found[1]]) if quoted else ""
    raw = raw.replace('`"', "'").replace('"`', "'").replace("`", "'").rstrip(".") + tail
    return raw[:1].lower() + raw[1:] if raw[1:2].islower() else raw
