"""A first look into an image: does it start here, and has it what an action needs?

An image cannot change without its digest, so each is looked at once and what was seen is kept for the user.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from functools import cache
from pathlib import Path
from typing import NamedTuple

from mxt.action.image import Image
from mxt.errors import ToolchainError
from mxt.execution.engine import Engine, ask, find_engine, find_image, last_line, unpinned
from mxt.execution.limits import limit_options

LEAST = (3, 10)  # of Python, for the little of mxt that runs inside
_VERSION = 1
_PYTHON = (
    "import json, shutil, sys; print(json.dumps([list(sys.version_info[:3]), bool(shutil.which('bash'))]))"
)
# nothing of the host, and no network
_BARE = ("--rm", "--pull", "never", "--network", "none", "--log-driver", "none", "--entrypoint")


class Container(NamedTuple):
    """An image that starts here. engine: with the options it took. image: its id, so no other can be run."""

    engine: Engine
    image: str


class _Seen(NamedTuple):
    """runtime: "" or the OCI runtime that it took. python: its version, or (). bash: whether there is one."""

    runtime: str
    python: tuple[int, ...]
    bash: bool


def container(image: Image, *, python: bool, bash: bool) -> Container:
    """What is needed to run actions in an image.

    Raises ToolchainError where it is not pinned, no engine serves, the image is not here, does not start, or
    lacks the Python or the bash that the actions need.
    """
    if not image.pinned:
        raise unpinned(image)
    found, seen = _start(image)
    least = ".".join(map(str, LEAST))
    if python and not seen.python:
        raise _lacks(
            image, "has no 'python3' on its PATH", f"stages run on the image's own Python {least} or newer"
        )
    if python and seen.python < LEAST:
        version = ".".join(map(str, seen.python))
        raise _lacks(image, f"has Python {version}", f"stages need {least} or newer")
    if bash and not seen.bash:
        raise _lacks(image, "has no 'bash' on its PATH", "genrules run it")
    return found


@cache
def _start(image: Image) -> tuple[Container, _Seen]:
    """Asked before a build and for each of its actions, so answered once."""
    engine = find_engine()
    identity = find_image(engine, image)
    seen = _remembered(engine, identity)
    if seen is None:
        seen = _look(engine, identity, image)
        _remember(engine, identity, seen)
    if seen.runtime:
        engine = engine._replace(options=("--runtime", seen.runtime, *engine.options))
    return Container(engine, identity), seen


def _look(engine: Engine, identity: str, image: Image) -> _Seen:
    runtimes = [""]
    places = os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin"
    if engine.kind == "podman" and not engine.options and shutil.which("runc", path=places):
        runtimes.append("runc")  # crun refuses machines with both versions of control groups
    said = ""
    for runtime in runtimes:
        options = ("--runtime", runtime) if runtime else ()
        begin = [engine.path, *engine.options, *options, "run", *_BARE[:-1], *limit_options(engine)]
        begin += [*engine.run_options, _BARE[-1]]
        done = ask([*begin, "python3", identity, "-c", _PYTHON], 300)
        if done.returncode == 0:
            try:
                python, bash = json.loads(done.stdout.splitlines()[-1])
                return _Seen(runtime, tuple(int(n) for n in python), bool(bash))
            except (ValueError, LookupError, TypeError):
                pass
        # without a Python it may do for genrules
        plain = ask([*begin, "bash", identity, "-c", "echo bash"], 300)
        if plain.returncode == 0 and plain.stdout.strip() == "bash":
            return _Seen(runtime, (), True)
        said = said or last_line(plain)
    raise ToolchainError(
        f"{engine.kind} cannot start the image of toolchain '{image.label}'",
        where=image.where,
        excerpt=f"    {said}",
        hint=f"try it: {' '.join(engine.command('run', *_BARE, 'bash', identity[:12]))}; "
        "options that this machine needs go into MXT_CONTAINER_ARGS",
    )


def _lacks(image: Image, fact: str, why: str) -> ToolchainError:
    return ToolchainError(
        f"the image of toolchain '{image.label}' {fact}; {why}",
        where=image.where,
        excerpt=f"    {image.reference}",
        hint="use an image that has it, or build one upon this (toolchains/Containerfile shows how)",
    )


def _memory(engine: Engine, identity: str) -> Path | None:
    base = os.environ.get("XDG_CACHE_HOME") or ""
    if not os.path.isabs(base):
        base = os.path.expanduser("~/.cache")
    if not os.path.isabs(base):
        return None
    words = "\0".join([str(_VERSION), *engine[:2], *engine.options, *engine.run_options, identity])
    name = hashlib.sha256(words.encode("utf-8", "surrogateescape")).hexdigest()[:32]
    return Path(base, "mxt", "images", f"{name}.json")


def _remembered(engine: Engine, identity: str) -> _Seen | None:
    path = _memory(engine, identity)
    try:
        if path is None:
            return None
        runtime, python, bash = json.loads(path.read_bytes())
        return _Seen(str(runtime), tuple(int(n) for n in python), bool(bash))
    except (OSError, ValueError, TypeError):
        return None  # only a memory: without it the first action starts a second later


def _remember(engine: Engine, identity: str, seen: _Seen) -> None:
    path = _memory(engine, identity)
    if path is None:
        return
    aside = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside.write_text(json.dumps(seen), encoding="utf-8")
        os.replace(aside, path)
    except OSError:
        aside.unlink(missing_ok=True)
