"""A toolchain lock: the interpreter and the closure of distributions that an action runs in, by digest."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from mxt.errors import ToolchainError

LOCK_VERSION = 1
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*\Z")


class Interpreter(NamedTuple):
    """implementation: "cpython". version: "3.11", no patch level. abi: "cp311"."""

    implementation: str
    version: str
    abi: str

    def __str__(self) -> str:
        return f"{self.implementation} {self.version} ({self.abi})"


class Distribution(NamedTuple):
    """name: normalised. digest: see mxt.action.installed.contents_digest."""

    name: str
    version: str
    digest: str


@dataclass(frozen=True)
class Lock:
    """A parsed lock. path: as it was named, for messages. digest: BLAKE3 of the file's bytes, for keys."""

    path: str
    digest: str
    interpreter: Interpreter
    distributions: tuple[Distribution, ...]


class Difference(NamedTuple):
    """One way in which an environment is not what a lock says; subject: a distribution or "interpreter"."""

    subject: str
    text: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.text}"


def normalise(name: str) -> str:
    """A distribution's name as every index compares it: "ruamel_yaml.x" is "ruamel-yaml-x"."""
    return re.sub(r"[-_.]+", "-", name).lower()


def this_interpreter() -> Interpreter:
    """The interpreter that runs this code."""
    major, minor = sys.version_info[:2]
    name = sys.implementation.name
    return Interpreter(name, f"{major}.{minor}", f"{'cp' if name == 'cpython' else name}{major}{minor}")


def read_lock(path: Path, shown_as: str = "") -> Lock:
    """The lock in a file. Raises ToolchainError, naming the file, where it is not exactly one."""
    where = shown_as or str(path)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise ToolchainError(
            "there is no such toolchain lock", where=where, hint="write one with: mxt toolchain lock --write"
        ) from None
    except OSError as problem:
        raise ToolchainError(f"cannot read the toolchain lock: {problem.strerror}", where=where) from None
    return parse_lock(data, where)


def parse_lock(data: bytes, where: str) -> Lock:
    """The lock in these bytes: nothing unknown, nothing missing, names sorted, laid out as `render` does."""
    try:
        form = json.loads(data)
    except ValueError as problem:
        raise _bad(where, f"it is not JSON: {problem}") from None
    _fields(where, "the lock", form, ("version", "interpreter", "distributions"))
    if form["version"] != LOCK_VERSION:
        raise _bad(where, f"it has version {form['version']!r}, this mxt reads {LOCK_VERSION}")
    raw = form["interpreter"]
    _fields(where, "the interpreter", raw, Interpreter._fields)
    interpreter = Interpreter(*(_text(where, f"interpreter.{f}", raw[f]) for f in Interpreter._fields))
    if not isinstance(form["distributions"], list):
        raise _bad(where, "'distributions' is not a list")
    found = tuple(_distribution(where, i, item) for i, item in enumerate(form["distributions"]))
    names = [d.name for d in found]
    for before, after in pairwise(names):
        if before >= after:
            raise _bad(where, f"'{after}' is listed twice or out of order")
    if render(interpreter, found) != data:
        raise _bad(where, "it is laid out differently from what 'mxt toolchain lock' writes")
    from blake3 import blake3

    return Lock(where, blake3(data).hexdigest(), interpreter, found)


def render(interpreter: Interpreter, distributions: Sequence[Distribution]) -> bytes:
    """The file of a lock: keys sorted, one distribution a line, so that a review sees what changed."""

    def line(value: Mapping[str, str]) -> str:
        return json.dumps(value, sort_keys=True)

    rows = ",\n".join(f"    {line(d._asdict())}" for d in sorted(distributions))
    return (
        "{\n"
        f'  "distributions": [\n{rows}\n  ],\n'
        f'  "interpreter": {line(interpreter._asdict())},\n'
        f'  "version": {LOCK_VERSION}\n'
        "}\n"
    ).encode()


def changes(old: bytes, new: bytes, where: str) -> list[str]:
    """What a new lock changes, a distribution a line; old may be empty or no lock at all."""
    try:
        before = {d.name: d for d in parse_lock(old, where).distributions} if old else {}
    except ToolchainError:
        before = {}
    after = {d.name: d for d in parse_lock(new, where).distributions}
    lines = []
    for name in sorted(before.keys() | after.keys()):
        was, now = before.get(name), after.get(name)
        if was is None and now is not None:
            lines.append(f"+ {name} {now.version}")
        elif now is None and was is not None:
            lines.append(f"- {name} {was.version}")
        elif was and now and was != now:
            same = was.version == now.version
            lines.append(f"  {name} {was.version} -> {'other files' if same else now.version}")
    return lines


def mismatch(lock: Lock, differences: Sequence[Difference]) -> ToolchainError:
    """The error that shows every difference at once, and how to put right either side."""
    wanted = {d.name: d.version for d in lock.distributions}
    subjects = dict.fromkeys(d.subject for d in differences)
    again = " ".join(f"{name}=={wanted[name]}" for name in subjects if name in wanted)
    count = f"{len(differences)} difference{'s' if len(differences) != 1 else ''}"
    repair = f"put it right: {sys.executable} -m pip install --force-reinstall --no-deps {again}"
    accept = "if the change is meant, write a new lock: mxt toolchain lock --write"
    return ToolchainError(
        f"the environment differs from its toolchain lock: {count}",
        where=lock.path,
        excerpt="\n".join(f"    {d}" for d in differences),
        hint=f"{repair}\n  {accept}" if again else accept,
    )


def _bad(where: str, fact: str) -> ToolchainError:
    return ToolchainError(
        f"not a toolchain lock: {fact}", where=where, hint="write it again with: mxt toolchain lock --write"
    )


def _fields(where: str, what: str, form: Any, names: Sequence[str]) -> None:
    if not isinstance(form, dict):
        raise _bad(where, f"{what} is not an object")
    for name in form:
        if name not in names:
            raise _bad(where, f"{what} has an unknown field '{name}'")
    for name in names:
        if name not in form:
            raise _bad(where, f"{what} lacks the field '{name}'")


def _text(where: str, what: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise _bad(where, f"'{what}' is not text")
    return value


def _distribution(where: str, index: int, form: Any) -> Distribution:
    what = f"distribution {index + 1}"
    _fields(where, what, form, Distribution._fields)
    found = Distribution(*(_text(where, f"{what}.{f}", form[f]) for f in Distribution._fields))
    if not _NAME.match(found.name):
        raise _bad(where, f"'{found.name}' is not a normalised name")
    if not _DIGEST.match(found.digest):
        raise _bad(where, f"the digest of '{found.name}' is not 64 lower hexadecimal characters")
    return found
