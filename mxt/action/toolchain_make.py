"""Makes a toolchain lock from an environment: the closure of the requirements it was installed from."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from mxt.action.installed import Installed, installed
from mxt.action.toolchain_lock import Distribution, normalise, render, this_interpreter
from mxt.errors import ToolchainError

if TYPE_CHECKING:
    from packaging.requirements import Requirement


def read_pins(path: Path) -> list[str]:
    """The requirements of a pinned file: one `name==version` a line, comments and blank lines apart."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as problem:
        raise ToolchainError(
            f"cannot read the pinned requirements: {problem.strerror}", where=str(path)
        ) from None
    found = []
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9.!+_-]+", text):
            raise ToolchainError(
                f"'{text}' is not an exact pin", where=f"{path}:{number}", hint="write it as name==version"
            )
        found.append(text)
    return found


def make_lock(site: Path, roots: Iterable[str]) -> bytes:
    """The lock file of what the requirements `roots` need in site-packages `site`, markers evaluated here.

    Raises ToolchainError where a needed distribution is not installed or a version does not fit.
    """
    from packaging.requirements import Requirement

    present = {one.name: one for one in installed(site)}
    waiting = [(Requirement(root), "the pinned file") for root in roots]
    closure: dict[str, Installed] = {}
    done: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        requirement, asker = waiting.pop()
        name = normalise(requirement.name)
        one = present.get(name)
        if one is None:
            raise ToolchainError(f"'{name}' is not installed, and {asker} needs it", where=str(site))
        if not requirement.specifier.contains(one.version, prereleases=True):
            raise ToolchainError(
                f"'{name}' is version {one.version}, and {asker} needs {requirement.specifier}",
                where=str(site),
            )
        step = (name, frozenset(requirement.extras))
        if step not in done:
            done.add(step)
            closure[name] = one
            waiting += [(r, f"'{name}'") for r in _needs(one, requirement.extras)]
    rows = [Distribution(one.name, one.version, one.contents_digest()) for one in closure.values()]
    return render(this_interpreter(), rows)


def _needs(one: Installed, extras: Iterable[str]) -> list[Requirement]:
    from importlib.metadata import Distribution as Metadata

    from packaging.requirements import Requirement

    asked = [{"extra": extra} for extra in extras] or [{"extra": ""}]
    requirements = [Requirement(text) for text in Metadata.at(one.site / one.folder).requires or []]
    return [r for r in requirements if r.marker is None or any(r.marker.evaluate(e) for e in asked)]
