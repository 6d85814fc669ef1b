"""Where a workspace begins: the way up from a folder. Imports nothing: every null build goes through here."""

from __future__ import annotations

import os

MXTBUILD = "MXTBUILD"


def search_root(start: str) -> str | None:
    """The highest folder above start, itself included, that has an MXTBUILD; None where there is none.

    Does not climb past a folder that holds .git or whose MXTBUILD begins with `workspace(`, nor into
    another owner's. start: a real path.
    """
    owner = os.stat(start).st_uid
    found = None
    folder = start
    while True:
        build_file = f"{folder}/{MXTBUILD}" if folder != "/" else f"/{MXTBUILD}"
        try:
            if os.stat(folder).st_uid != owner:
                break
            if os.path.isfile(build_file):
                # in a shared folder such as /tmp anybody could lay down a MXTBUILD above ours
                if os.stat(build_file).st_uid != owner:
                    break
                found = folder
                if begins_workspace(build_file):
                    break
            if os.path.lexists(f"{folder}/.git"):
                break
        except OSError:
            break
        above = os.path.dirname(folder)
        if above == folder:
            break
        folder = above
    return found


def begins_workspace(build_file: str | os.PathLike[str]) -> bool:
    """Whether the first statement of an MXTBUILD is a call of workspace()."""
    try:
        with open(build_file, encoding="utf-8", errors="replace") as file:
            head = file.read(65536)
    except OSError:
        return False
    for line in map(str.strip, head.splitlines()):
        if line and not line.startswith("#"):
            return line.startswith("workspace") and line[len("workspace") :].lstrip().startswith("(")
    return False
