"""A folder in which exactly the closure of a toolchain lock can be imported, made of links."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from mxt.action.installed import Installed, installed
from mxt.action.toolchain_lock import Lock
from mxt.errors import ToolchainError

PACKAGES = "packages"
_SITE = "site"


@dataclass(frozen=True)
class SiteView:
    """folder: to be put on sys.path. packages: the site-packages folder behind it.

    Every link in folder reads `../packages/...`: so wherever folder is mounted, packages must be
    mounted beside it under that name. On the host a link of that name is there already.
    """

    folder: Path
    packages: Path


def site_view(lock: Lock, site: Path, base: Path) -> SiteView:
    """The view of a checked environment below `base`, made where it is missing; two at once are safe.

    What is installed beside the closure is not in it, nor are .pth files and loose files. Links
    and no copies or hard links: the environment is 2 GB and may lie on another file system or
    in a lower layer of a container's. Compiled extensions load through them: the kernel follows
    a link before it goes up from $ORIGIN to a sibling such as numpy.libs.
    """
    from blake3 import blake3

    present = list(installed(site))
    # a distribution added beside the closure may put files into a folder that was linked as a whole
    identity = "\n".join([lock.digest, os.path.realpath(site), *sorted(p.folder for p in present)])
    home = base / blake3(identity.encode()).hexdigest()[:32]
    view = SiteView(home / _SITE, site)
    if not home.is_dir():
        names = {d.name for d in lock.distributions}
        aside = base / f"{home.name}.{os.getpid()}"
        shutil.rmtree(aside, ignore_errors=True)
        try:
            (aside / _SITE).mkdir(parents=True)
            # relative, so that a workspace that holds both may be moved
            target = os.path.relpath(os.path.realpath(site), os.path.realpath(aside))
            (aside / PACKAGES).symlink_to(target)
            inside, beside = ([p for p in present if (p.name in names) is wanted] for wanted in (True, False))
            _link(aside / _SITE, inside, beside)
            aside.rename(home)
        except OSError as problem:
            shutil.rmtree(aside, ignore_errors=True)
            if not home.is_dir():  # another process may have made it meanwhile
                raise ToolchainError(
                    f"cannot make the view of the toolchain: {problem.strerror}", where=str(base)
                ) from None
    _lead_to(home / PACKAGES, os.path.realpath(site))
    return view


def _lead_to(link: Path, site: str) -> None:
    """Mend the way to the environment, where the workspace was moved or copied away from it."""
    if os.path.realpath(link) == site:
        return
    aside = link.with_name(f"{link.name}.{os.getpid()}")
    try:
        aside.unlink(missing_ok=True)
        aside.symlink_to(os.path.relpath(site, os.path.realpath(link.parent)))
        os.replace(aside, link)
    except OSError as problem:
        raise ToolchainError(
            f"cannot mend the view of the toolchain: {problem.strerror}", where=str(link)
        ) from None


def _link(folder: Path, inside: Iterable[Installed], beside: Iterable[Installed]) -> None:
    foreign = {_top(row.path) for one in beside for row in one.rows} | {"__pycache__"}
    linked: set[str] = set()
    for one in inside:
        for row in one.rows:
            top = _top(row.path)
            if top in ("..", "") or row.path.endswith(".pth"):
                continue
            path = row.path if top in foreign else top
            if path not in linked and os.path.lexists(one.site / path):
                linked.add(path)
                link = folder / path
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to("../" * (path.count("/") + 1) + f"{PACKAGES}/{path}")


def _top(path: str) -> str:
    return path.partition("/")[0]
