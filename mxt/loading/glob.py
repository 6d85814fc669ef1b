"""glob(): the files of a package that match patterns, as Bazel does, sorted, never outside it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from mxt.errors import LoadError
from mxt.loading.label import quoted
from mxt.loading.reads import GlobRead, Stat, stat_of
from mxt.loading.root import MXTBUILD
from mxt.loading.workspace import Workspace

Segment = re.Pattern[str] | None  # None stands for "**"
# (pattern, segment of it) pairs: how far each pattern has come on the way down
States = set[tuple[int, int]]
# a folder still to list: its path, the states of include and exclude there, links taken to get there
_Step = tuple[str, States, States, tuple[str, ...]]
MAX_RESULTS = 1_000_000


def glob(
    workspace: Workspace,
    package: str,
    include: list[str],
    exclude: list[str],
    allow_empty: bool = False,
    check: Callable[[], None] = lambda: None,
) -> GlobRead:
    """Files of package that match an include pattern and no exclude pattern, relative to it.

    `*` matches within one path segment, `**` any number of them. Folders with a MXTBUILD, cache/,
    mxt-out/, .git and .venv are not entered. `check` is called often and may raise to stop.
    Raises LoadError for a bad pattern, for a match of nothing (unless allow_empty), and for a link
    that leads out of the workspace.
    """
    walk = _Walk(workspace, package, [_compile(p) for p in include], [_compile(p) for p in exclude], check)
    walk.run()
    if not allow_empty:
        for pattern, hit in zip(include, walk.hit, strict=True):
            if not hit:
                raise LoadError(
                    f"glob pattern {quoted(pattern)} matches no file",
                    hint="correct the pattern, or pass allow_empty = True",
                )
        if not walk.found:
            raise LoadError(
                "glob() matches no file: every match is excluded",
                hint="correct exclude, or pass allow_empty = True",
            )
    return GlobRead(package, include, exclude, sorted(walk.found), walk.directories)


def _compile(pattern: object) -> list[Segment]:
    if not isinstance(pattern, str):
        raise LoadError(f"glob pattern {quoted(pattern)} must be text")
    shown = quoted(pattern)
    if not pattern:
        raise LoadError("glob pattern is empty")
    if pattern.startswith("/"):
        raise LoadError(f"glob pattern {shown} is an absolute path", hint="write it relative to the package")
    segments: list[Segment] = []
    for segment in pattern.split("/"):
        if segment == "":
            raise LoadError(f"glob pattern {shown} has an empty segment")
        if segment in (".", ".."):
            raise LoadError(
                f"glob pattern {shown} has a '{segment}' segment", hint="a glob sees its own package only"
            )
        if "**" in segment and segment != "**":
            raise LoadError(f"glob pattern {shown}: '**' must be a whole segment", hint="write 'a/**/b*'")
        if "\\" in segment or "?" in segment or not segment.isprintable():
            raise LoadError(
                f"glob pattern {shown} has a character with no meaning here", hint="only * and ** are special"
            )
        if segment == "**":
            if segments and segments[-1] is None:
                continue  # "**/**" means "**"
            segments.append(None)
        else:
            segments.append(re.compile(".*".join(re.escape(part) for part in segment.split("*")), re.DOTALL))
    return segments


def _advance(states: States, patterns: list[list[Segment]], name: str) -> States:
    """The positions in patterns after one more path segment called name."""
    after = set()
    for index, start in states:
        segments, at = patterns[index], start
        while at < len(segments):
            segment = segments[at]
            if segment is None:
                after.add((index, at))  # "**" takes this segment and stays
                at += 1  # or took none
                continue
            if segment.fullmatch(name):
                after.add((index, at + 1))
            break
    return after


def _accepting(states: States, patterns: list[list[Segment]]) -> set[int]:
    """The patterns that are satisfied here; a trailing "**" is."""
    return {
        index
        for index, at in states
        if at == len(patterns[index]) or (at == len(patterns[index]) - 1 and patterns[index][at] is None)
    }


@dataclass(slots=True)
class _Walk:
    workspace: Workspace
    package: str
    include: list[list[Segment]]
    exclude: list[list[Segment]]
    check: Callable[[], None]
    found: list[str] = field(default_factory=list)
    hit: list[bool] = field(default_factory=list)
    directories: dict[str, Stat | None] = field(default_factory=dict)

    def run(self) -> None:
        self.hit = [False] * len(self.include)
        top = os.path.join(self.workspace.root, self.package) if self.package else str(self.workspace.root)
        start = {(i, 0) for i in range(len(self.include))}
        stop = {(i, 0) for i in range(len(self.exclude))}
        waiting: list[_Step] = [("", start, stop, (os.path.realpath(top),))]
        while waiting:
            relative, states, excluding, chain = waiting.pop()
            self.check()
            folder = os.path.join(top, relative) if relative else top
            key = self._key(relative)
            self.directories[key] = stat_of(folder)
            try:
                entries = list(os.scandir(folder))
            except OSError as problem:
                raise LoadError(f"glob() cannot list the folder: {problem.strerror}", where=key) from None
            if relative and any(e.name == MXTBUILD and e.is_file() for e in entries):
                continue  # another package
            for entry in entries:
                after = _advance(states, self.include, entry.name)
                if not after:
                    continue
                path = f"{relative}/{entry.name}" if relative else entry.name
                excluded = _advance(excluding, self.exclude, entry.name)
                if self.workspace.excluded(self._key(path)):
                    continue
                if entry.is_symlink():
                    self._visit_link(entry, path, after, excluded, chain, waiting)
                elif entry.is_dir(follow_symlinks=False):
                    waiting.append((path, after, excluded, chain))
                elif entry.is_file(follow_symlinks=False):
                    self._take(path, after, excluded)

    def _visit_link(
        self,
        entry: os.DirEntry[str],
        path: str,
        after: States,
        excluded: States,
        chain: tuple[str, ...],
        waiting: list[_Step],
    ) -> None:
        accepted = _accepting(after, self.include)
        try:
            is_dir, is_file = entry.is_dir(), entry.is_file()
        except OSError:  # a loop of links
            is_dir = is_file = False
        wanted = is_dir and any(at < len(self.include[index]) for index, at in after)
        if not (wanted or (is_file and accepted)):
            if accepted and not is_dir:  # dangling: it may come to life elsewhere
                self.directories[self._key(path)] = stat_of(entry.path)
            return
        if _accepting(excluded, self.exclude):
            self._mark(after)
            return
        real = os.path.realpath(entry.path)
        root = str(self.workspace.root)
        inside = real == root or real.startswith(root.rstrip("/") + "/")
        if not inside or (real != root and self.workspace.excluded(os.path.relpath(real, root))):
            out = "into the store" if inside else "out of the workspace"
            raise LoadError(
                f"the link {quoted(self._key(path))} leads {out}, to {quoted(real)}",
                hint="copy what it points to into the workspace, or exclude it in the glob",
            )
        if not is_dir:
            self._take(path, after, excluded)
            return
        # a link to a folder that we are in already is a loop
        above = (*chain, os.path.realpath(os.path.dirname(entry.path)))
        if not any(c == real or c.startswith(real.rstrip("/") + "/") for c in above):
            waiting.append((path, after, excluded, (*above, real)))

    def _take(self, path: str, after: States, excluded: States) -> None:
        accepted = self._mark(after)
        if not accepted or _accepting(excluded, self.exclude):
            return
        try:
            path.encode()
        except UnicodeEncodeError:
            raise LoadError(
                f"file name {path!a} is not UTF-8",
                where=self.package,
                hint="rename it, or exclude it in the glob",
            ) from None
        self.found.append(path)
        if len(self.found) > MAX_RESULTS:
            raise LoadError(
                f"glob() matches more than {MAX_RESULTS} files", hint="pack them into fewer files"
            )

    def _mark(self, after: States) -> set[int]:
        accepted = _accepting(after, self.include)
        for index in accepted:
            self.hit[index] = True
        return accepted

    def _key(self, relative: str) -> str:
        return "/".join(part for part in (self.package, relative) if part) or "."
