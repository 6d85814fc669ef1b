"""Labels: the name of a target or source file, `//package:name`, parsed as strictly as Bazel does."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from mxt.errors import LoadError, MxtError

BUILTIN_REPO = "mxt"

# printable characters but these; wider than Bazel, because data files have names beyond ASCII
_BAD = re.compile(r"[\x00-\x1f\x7f-\x9f\\:\ud800-\udfff\u2028\u2029\u200b-\u200f\u202a-\u202e\ufeff]")
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")  # what nearly every name looks like


@dataclass(frozen=True, slots=True, order=True)
class Label:
    """A target or file: `//package:name`, or `@mxt//package:name` for what comes with mxt.

    package: folder below the workspace root, "" for the root itself. name: path below the package.
    """

    package: str
    name: str
    repo: str = ""

    def __str__(self) -> str:
        return f"{'@' + self.repo if self.repo else ''}//{self.package}:{self.name}"

    @property
    def path(self) -> str:
        """The file that this label would name, below the root of its repository."""
        return f"{self.package}/{self.name}" if self.package else self.name

    @staticmethod
    def parse(text: str, package: str = "", *, where: str = "", error: type[MxtError] = LoadError) -> Label:
        """The label that text means inside package; raises `error` naming what is malformed."""
        try:
            return _parse(text, package)
        except _MalformedError as bad:
            raise error(f"label {quoted(text)}: {bad.problem}", where=where, hint=bad.hint) from None


class _MalformedError(Exception):
    def __init__(self, problem: str, hint: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.hint = hint


def quoted(text: object, limit: int = 200) -> str:
    """text in single quotes for a message, control characters escaped, shortened in the middle."""
    shown = text if isinstance(text, str) else repr(text)
    if len(shown) > limit:
        shown = f"{shown[: limit // 2]}...{shown[-limit // 4 :]}"
    return (
        "'"
        + "".join(
            c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in shown
        )
        + "'"
    )


def check_package(package: str, *, where: str = "", error: type[MxtError] = LoadError) -> str:
    """package itself, or `error` where no folder may be called so."""
    try:
        _check_package(package)
    except _MalformedError as bad:
        raise error(f"package {quoted(package)}: {bad.problem}", where=where, hint=bad.hint) from None
    return package


def check_name(name: str, *, where: str = "", error: type[MxtError] = LoadError) -> str:
    """name itself, or `error` where no target may be called so."""
    try:
        _check_name(name)
    except _MalformedError as bad:
        raise error(f"name {quoted(name)}: {bad.problem}", where=where, hint=bad.hint) from None
    return name


@lru_cache(maxsize=65536)
def _parse(text: str, here: str) -> Label:
    if not isinstance(text, str):
        raise _MalformedError(f"must be text, not a {type(text).__name__}")
    if not text:
        raise _MalformedError("is empty", "write '//package:name' or ':name'")
    repo = ""
    rest = text
    if rest.startswith("@"):
        repo, slashes, after = rest[1:].partition("//")
        if not slashes:
            raise _MalformedError("has no '//' after its repository", "write '@mxt//package:name'")
        if repo not in ("", BUILTIN_REPO):
            raise _MalformedError(
                f"unknown repository '@{repo}'", "there is only '@mxt', what comes with mxt"
            )
        rest = "//" + after
    if rest.startswith("//"):
        package, colon, name = rest[2:].partition(":")
        _check_package(package)
        if not colon:
            if not package:
                raise _MalformedError("names no target", "write '//:name' for a target of the root package")
            name = package.rpartition("/")[2]
    elif rest.startswith("/"):
        raise _MalformedError("is an absolute path", "write '//package:name', relative to the workspace")
    else:
        package = here
        name = rest.removeprefix(":")
        if ":" in name:
            raise _MalformedError("is relative and names a package", f"write '//{name}'")
    _check_name(name)
    return Label(package, name, repo)


def _check_package(package: str) -> None:
    _check_characters(package, "package")
    if not package:
        return
    if package.startswith("/") or package.endswith("/"):
        raise _MalformedError("the package begins or ends with '/'")
    for segment in package.split("/"):
        _check_segment(segment)


def _check_name(name: str) -> None:
    if len(name) < 200 and _PLAIN.fullmatch(name):
        return
    if not name:
        raise _MalformedError("the target's name is empty")
    _check_characters(name, "target")
    if name.startswith("/"):
        raise _MalformedError("the target's name is an absolute path", "write it relative to its package")
    if name.endswith("/"):
        raise _MalformedError("the target's name ends with '/'")
    for segment in name.split("/"):
        _check_segment(segment)


def _check_segment(segment: str) -> None:
    if segment == "":
        raise _MalformedError("has an empty segment ('//')")
    if segment == "..":
        raise _MalformedError("goes up with '..'", "name the other package: '//package:name'")
    if segment == ".":
        raise _MalformedError("has a '.' segment", "leave it out")
    if segment == "...":
        raise _MalformedError("'...' is a pattern, not a label", "name one target")
    if len(segment.encode()) > 255:
        raise _MalformedError("has a segment of more than 255 bytes")


def _check_characters(text: str, part: str) -> None:
    bad = _BAD.search(text)
    if bad:
        character = bad.group()
        shown = character if character.isprintable() else f"\\u{ord(character):04x}"
        raise _MalformedError(f"the {part}'s name must not hold '{shown}'")
    if text.isascii():
        return
    for character in text:
        if not character.isprintable():
            raise _MalformedError(f"the {part}'s name must not hold '\\u{ord(character):04x}'")
