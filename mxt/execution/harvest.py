"""Takes what an action made into the store: everything declared, nothing else, nothing private."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from mxt.action.action import Action, Output
from mxt.errors import ActionError
from mxt.execution.prepare import Layout
from mxt.store.realisation import Output as Made
from mxt.store.store import Store
from mxt.store.tree import store_tree
from mxt.store.tree_object import MAX_DEPTH


def check_outputs(action: Action, layout: Layout) -> None:
    """Raises ActionError listing what is missing, of the wrong kind, or not declared."""
    problems = []
    make_readable(layout.outputs)
    for output in action.outputs:
        path = layout.outputs / output.path
        if link := _link_on_the_way(layout.outputs, output.path):
            problems.append(f"made '{link}' a link, where a folder of its own must be")
            continue
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:
            problems.append(f"did not make '{output.path}'")
            continue
        if output.kind == "file" and stat.S_ISLNK(mode):
            if not _replace_link(path, layout):
                problems.append(f"made '{output.path}' a link that leads to none of its outputs")
        elif output.kind == "file" and not stat.S_ISREG(mode):
            problems.append(f"made '{output.path}' as something other than a file")
        elif output.kind == "dir" and not stat.S_ISDIR(mode):
            problems.append(f"made '{output.path}' as something other than a folder")
    declared = {o.path: o for o in action.outputs}
    problems += [
        f"made '{_printable(extra)}', which it does not declare"
        for extra in _undeclared(layout.outputs, declared)
    ]
    if problems:
        raise ActionError(
            "; ".join(problems[:10]) + ("; ..." if len(problems) > 10 else ""),
            hint="declare every output, and write temporary files to $TMPDIR",
        )


def _printable(name: str) -> str:
    """A file's name for a message, also one that is not UTF-8."""
    return os.fsencode(name).decode(errors="backslashreplace")


def make_readable(folder: Path) -> None:
    """Give the owner what an action took from itself: every file can be read, every folder entered.

    Raises ActionError where folders are nested deeper than the store keeps.
    """
    stack = [(os.fspath(folder), 0)]
    while stack:
        place, depth = stack.pop()
        if depth > MAX_DEPTH:
            raise ActionError(f"made folders that are nested more than {MAX_DEPTH} deep")
        try:
            if os.lstat(place).st_mode & stat.S_IRWXU != stat.S_IRWXU:
                os.chmod(place, 0o700)
            entries = list(os.scandir(place))
        except FileNotFoundError:
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                stack.append((entry.path, depth + 1))
            elif entry.is_file(follow_symlinks=False):
                mode = entry.stat(follow_symlinks=False).st_mode
                if not mode & stat.S_IRUSR:
                    os.chmod(entry.path, stat.S_IMODE(mode) | stat.S_IRUSR)


def _link_on_the_way(root: Path, path: str) -> str:
    """The first of a path's parents that is a symlink: what lies behind it is not the action's."""
    parts = path.split("/")
    for count in range(1, len(parts)):
        parent = "/".join(parts[:count])
        if (root / parent).is_symlink():
            return parent
    return ""


def _replace_link(path: Path, layout: Layout) -> bool:
    """A link to another output counts as the file, as with `cp`; the store holds bytes.

    False where it leads elsewhere: read from out here, that would be a file of this machine.
    """
    try:
        target = path.resolve(strict=True)
        if not target.is_relative_to(layout.outputs.resolve()) or not target.is_file():
            return False
    except (OSError, RuntimeError):  # it dangles, or goes round in a circle
        return False
    aside = layout.root / "link"
    shutil.copy(target, aside)
    aside.replace(path)
    return True


def _undeclared(root: Path, declared: Mapping[str, Output]) -> Iterator[str]:
    """Paths below root that belong to no declared output; folders on the way to one are fine."""
    parents = {"/".join(p.split("/")[:i]) for p in declared for i in range(1, p.count("/") + 1)}
    stack = [""]
    while stack:
        folder = stack.pop()
        for entry in sorted(os.scandir(root / folder), key=lambda e: e.name):
            path = f"{folder}/{entry.name}" if folder else entry.name
            if path in declared:
                continue
            if path in parents and entry.is_dir(follow_symlinks=False):
                stack.append(path)
            else:
                yield path


def take(store: Store, action: Action, layout: Layout) -> dict[str, Made]:
    """Adopt every declared output into the CAS; what each became, by output name."""
    made: dict[str, Made] = {}
    for output in action.outputs:
        path = layout.outputs / output.path
        if output.kind == "dir":
            tree = store_tree(store.cas, path)
            made[output.name] = Made("dir", tree.digest, output.path, tree.size)
        else:
            executable = bool(path.stat().st_mode & stat.S_IXUSR)
            found = store.cas.store_file(path, executable=executable)
            made[output.name] = Made("file", found.digest, output.path, found.size, executable)
    return made
