"""Names of packages and targets for shell completion: written after each analysis, read without loading.

One line a package, `package<TAB>target<TAB>target...`, sorted. It may be stale or gone, as it decides
nothing: what is built is always loaded anew. Imports next to nothing, because every press of Tab reads it.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

NAME = "labels.txt"
_HEAD = "mxt labels 1\n"


def index_file(store: str | os.PathLike[str]) -> str:
    return os.path.join(store, "state", NAME)


def read_index(file: str) -> dict[str, str]:
    """Package -> its targets, parted by tabs; {} where there is no index or a damaged one."""
    try:
        with open(file, encoding="utf-8") as opened:
            if opened.readline() != _HEAD:
                return {}
            rows = opened.read().split("\n")
    except (OSError, UnicodeDecodeError):
        return {}
    found = {}
    for row in rows:
        package, tab, names = row.partition("\t")
        if tab:
            found[package] = names
    return found


def remember(store: str | os.PathLike[str], root: str, loaded: Mapping[str, Iterable[str]]) -> None:
    """Bring the index up to date with loaded packages; others stay as long as their MXTBUILD is there.

    Never fails: a store that cannot be written costs some completions.
    """
    if not os.path.isdir(store):
        return  # to make it would change the root's listing under a build's feet
    file = index_file(store)
    old = read_index(file)
    new = {p: names for p, names in old.items() if p in loaded or os.path.isfile(f"{root}/{p}/MXTBUILD")}
    new.update((package, "\t".join(sorted(names))) for package, names in loaded.items())
    if new == old:
        return
    aside = f"{file}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(file), exist_ok=True)
        with open(aside, "w", encoding="utf-8") as opened:
            opened.write(_HEAD)
            opened.writelines(f"{package}\t{new[package]}\n" for package in sorted(new))
        os.replace(aside, file)
    except OSError:
        try:
            os.unlink(aside)
        except OSError:
            pass
