"""`mxt build LABEL...` when nothing has changed: answered before anything is imported that could wait.

Every null build pays for what this module and snapshot.py import, so they import next to nothing. What
they cannot answer at once is answered the whole way, by build.py.
"""

from __future__ import annotations

import os
import sys

from mxt.graph.snapshot import engine_identity, look, place
from mxt.loading.root import MXTBUILD, search_root

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from mxt.graph.snapshot import Look


# what the glance saw, for the build that follows in this process: looking again takes as long
looks: dict[str, Look | None] = {}
# when it began (time.monotonic): that time is the build's, too
began = 0.0


def nothing_to_do(args: Sequence[str]) -> bool:
    """Whether a build with these arguments has nothing to do; says so if it has not."""
    # time, not the module of that name: it is built in, and imported by every Python at its start
    import time

    global began
    began = time.monotonic()
    labels = _labels(args)
    found = find(os.environ) if labels else None
    if found is None:
        return False
    root, store = found
    request = request_text(root, labels)
    seen = looks[request] = look(place(store, request), root, engine_identity(), request)
    if seen is None or not seen.nothing_to_do:
        return False
    sys.stdout.write(null_line(seen.actions, time.monotonic() - began))
    return True


def _labels(args: Sequence[str]) -> list[str]:
    """The labels; none where an option is among them that says more than how to run what must run."""
    labels = []
    waiting = iter(args)
    for arg in waiting:
        if not arg.startswith("-"):
            labels.append(arg)
        elif arg in ("-j", "--jobs"):
            if not next(waiting, "").lstrip("0").isdecimal():
                return []
        elif arg not in ("-k", "--keep-going", "--no-sandbox"):
            return []
    return labels


def null_line(actions: int, seconds: float) -> str:
    """What a build says that had nothing to do."""
    if seconds >= 1:
        from mxt.words import duration

        return f"up to date: {actions} action{'' if actions == 1 else 's'} in {duration(seconds)}\n"
    return f"up to date: {actions} action{'' if actions == 1 else 's'} in {seconds:.2f} s\n"


def find(environ: os._Environ[str]) -> tuple[str, str] | None:
    """The workspace's root and its store, as find_workspace has them; None where it would complain."""
    try:
        here = os.getcwd()
        if chosen := environ.get("MXT_WORKSPACE"):
            root: str | None = os.path.realpath(os.path.join(here, os.path.expanduser(chosen)))
            if not os.path.isfile(f"{root}/{MXTBUILD}"):
                return None
        else:
            root = search_root(os.path.realpath(here))
        if root is None:
            return None
        if store := environ.get("MXT_STORE"):
            return root, os.path.abspath(os.path.join(here, os.path.expanduser(store)))
        return root, f"{root}/cache"
    except OSError:
        return None


def request_text(root: str, labels: Sequence[str]) -> str:
    """All that a null build depends on beside files, as one text."""
    where = os.path.relpath(os.getcwd(), root)
    # whose rules are trusted is written in the user's configuration
    user = [os.environ.get(name, "") for name in ("HOME", "XDG_CONFIG_HOME")]
    return "\n".join([root, where, *user, *labels])
