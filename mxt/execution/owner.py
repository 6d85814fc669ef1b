"""Whose a container is: the mxt process that started it; and the removal of those whose mxt is no more.

mxt's keeper ends a container together with mxt. What can still be left, when both were killed at once, is
found by its labels when the next container of the same store is to be started.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from functools import cache
from pathlib import Path

from mxt.execution.engine import Engine, ask

STORE_LABEL = "mxt.store"
OWNER_LABEL = "mxt.owner"


def store_mark(folder: Path) -> str:
    """What stands for a store, by a folder of it, in a label, which others can read."""
    return hashlib.sha256(os.fsencode(os.path.realpath(folder))).hexdigest()[:16]


@cache
def this_owner() -> str:
    """This process among all that the machine has had: boot, space of process ids, its own id and start."""
    return f"{_space()}.{os.getpid()}.{_started(os.getpid())}"


def remove_forgotten(engine: Engine, store: str) -> int:
    """Remove this store's containers whose mxt has ended; how many there were.

    One that was started on another boot, or among other process ids, cannot be judged and is left alone,
    unless it does not run.
    """
    listing = engine.command(
        "ps", "--all", "--no-trunc", "--filter", f"label={STORE_LABEL}={store}", "--format", "{{.ID}}"
    )
    count = 0
    for identity in ask(listing).stdout.split():
        facts = ask(engine.command("container", "inspect", identity))
        with contextlib.suppress(ValueError, LookupError, TypeError, AttributeError):
            one = json.loads(facts.stdout)[0]
            owner = str(one["Config"]["Labels"][OWNER_LABEL])
            if not _lives(owner, running=bool(one["State"]["Running"])):
                # without this, podman would ask the first process inside to end, and wait for ten seconds
                at_once = ("--time", "0") if engine.kind == "podman" else ()
                ask(engine.command("rm", "--force", *at_once, identity))
                count += 1
    return count


def _lives(owner: str, *, running: bool) -> bool:
    """Whether a container's mxt may still be at work."""
    space, _, rest = owner.rpartition(".")[0].rpartition(".")
    if space != _space():
        return running
    return _started(int(rest)) == owner.rpartition(".")[2]


@cache
def _space() -> str:
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot = file.read().strip().replace("-", "")[:12]
    return f"{boot}.{os.stat('/proc/self/ns/pid').st_ino}"


def _started(pid: int) -> str:
    """When a process started, in ticks since the boot; "" where there is none."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
