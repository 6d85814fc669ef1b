"""Target patterns of the command line: `//pkg:x`, `:all`, `//pkg/...`, `-//pkg:x`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from mxt.errors import UsageError
from mxt.loading.label import Label, check_package, quoted
from mxt.loading.workspace import Workspace

WILDCARDS = frozenset({"all", "*", "all-targets"})


class Kind(Enum):
    """What a pattern ranges over."""

    TARGET = "target"  # //pkg:x
    PACKAGE = "package"  # //pkg:all
    RECURSIVE = "recursive"  # //pkg/...


@dataclass(frozen=True, slots=True)
class Pattern:
    """One pattern. name is "" unless it means a single target; negative ones take away."""

    kind: Kind
    package: str
    name: str = ""
    negative: bool = False
    text: str = ""

    def __str__(self) -> str:
        """As the user wrote it."""
        return self.text

    @property
    def label(self) -> Label:
        """The single target that this pattern means; only for Kind.TARGET."""
        return Label(self.package, self.name)

    def matches_package(self, package: str) -> bool:
        """Whether targets of package may match."""
        if self.kind is Kind.RECURSIVE:
            return not self.package or package == self.package or package.startswith(self.package + "/")
        return package == self.package

    def matches(self, label: Label) -> bool:
        """Whether label is meant (in the positive sense, whatever `negative` says)."""
        if label.repo or not self.matches_package(label.package):
            return False
        return self.kind is not Kind.TARGET or label.name == self.name


def parse_pattern(text: str, workspace: Workspace, cwd: Path | None = None) -> Pattern:
    """text as Bazel reads it in the folder cwd; raises UsageError.

    Without a leading `//` it is relative to cwd: `x` and `:x` are of cwd's package, `a/b:c` is of
    the package a/b below cwd, `a/b` is that package's target `b` where it is a package.
    """
    shown = quoted(text)
    negative = text.startswith("-")
    body = text[1:] if negative else text
    if not body:
        raise UsageError(
            f"target pattern {shown} is empty", hint="write //package:name, //package:all or //..."
        )
    if body.startswith("@//"):
        body = body[1:]
    if body.startswith("@"):
        raise UsageError(
            f"target pattern {shown} names another repository",
            hint="only targets of this workspace can be built",
        )
    if body.startswith("/") and not body.startswith("//"):
        raise UsageError(
            f"target pattern {shown} is an absolute path",
            hint="write //package:name, relative to the workspace",
        )
    below = "" if body.startswith("//") else _relative_folder(workspace, cwd)
    kind, package, name = (
        _parse_absolute(body[2:], shown)
        if body.startswith("//")
        else _parse_relative(body, below, workspace, shown)
    )
    check_package(package, where="", error=UsageError)
    if kind is Kind.TARGET:
        Label.parse(f"//{package}:{name}", error=UsageError)
    return Pattern(kind, package, name, negative, text)


def parse_patterns(texts: Iterable[str], workspace: Workspace, cwd: Path | None = None) -> list[Pattern]:
    """All patterns in order; a negative one takes away from what stands before it."""
    return [parse_pattern(text, workspace, cwd) for text in texts]


def _relative_folder(workspace: Workspace, cwd: Path | None) -> str:
    here = Path(os.path.realpath(cwd if cwd is not None else Path.cwd()))
    try:
        relative = here.relative_to(workspace.root).as_posix()
    except ValueError:  # --workspace from elsewhere: relative to the root, as Bazel's --package_path
        return ""
    return "" if relative == "." else relative


def _parse_absolute(body: str, shown: str) -> tuple[Kind, str, str]:
    package, colon, name = body.partition(":")
    if package == "..." or package.endswith("/..."):
        if colon and name not in WILDCARDS:
            raise UsageError(
                f"target pattern {shown}: '...' takes no target name",
                hint="write //package/... or //package:name",
            )
        return Kind.RECURSIVE, package[:-3].rstrip("/"), ""
    if not colon:
        if not package:
            raise UsageError(f"target pattern {shown} names no target", hint="write //:name, //:all or //...")
        return Kind.TARGET, package, package.rpartition("/")[2]
    if name in WILDCARDS:
        return Kind.PACKAGE, package, ""
    return Kind.TARGET, package, name


def _parse_relative(body: str, below: str, workspace: Workspace, shown: str) -> tuple[Kind, str, str]:
    package, colon, name = body.partition(":")
    if (colon and package) or package == "..." or package.endswith("/..."):
        return _parse_absolute(f"{below}/{body}" if below else body, shown)
    own = workspace.package_of(workspace.root / below)
    rest = below[len(own) :].lstrip("/")  # cwd may lie below its package's folder
    if colon:
        if name in WILDCARDS:
            return Kind.PACKAGE, own, ""
        return Kind.TARGET, own, f"{rest}/{name}" if rest else name
    body = body.rstrip("/")
    if body in WILDCARDS:
        return Kind.PACKAGE, own, ""
    folder = f"{below}/{body}" if below else body
    if ".." not in folder.split("/") and workspace.is_package(folder):
        return Kind.TARGET, folder, folder.rpartition("/")[2]
    # a path: the nearest package above it holds the target
    parent = folder
    while "/" in parent:
        parent = parent.rpartition("/")[0]
        if ".." not in parent.split("/") and workspace.is_package(parent):
            return Kind.TARGET, parent, folder[len(parent) + 1 :]
    return Kind.TARGET, "", folder
