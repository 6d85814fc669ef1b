"""The container engine of this machine, podman or docker, and the images that it has.

MXT_CONTAINER chooses one: "podman", "docker" or a path. MXT_CONTAINER_ARGS adds options before the engine's
verb, such as "--runtime runc"; what follows a "--" in it is added to `run` (see engine_options.py).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from mxt.action.image import MACHINES, Image
from mxt.errors import ToolchainError
from mxt.execution.engine_options import engine_options

_SECONDS = 60
_INSTALL = "install podman (apt-get install podman), or docker; 'mxt doctor' tries them"


class Engine(NamedTuple):
    """kind: "podman" or "docker". options: before each verb. run_options: for `run`.

    rootless: its containers' root is this user. version: for people.
    """

    kind: str
    path: str
    options: tuple[str, ...] = ()
    run_options: tuple[str, ...] = ()
    rootless: bool = False
    version: str = ""

    def command(self, *args: str) -> list[str]:
        """The command line for a verb and its arguments."""
        return [self.path, *self.options, *args]


class Tried(NamedTuple):
    """An engine that was looked at. problem: why it does not serve; "" where it does."""

    name: str
    engine: Engine | None
    problem: str


def find_engine() -> Engine:
    """The engine to use: the one that is asked for, else podman, else docker.

    Raises ToolchainError, saying of each why it does not serve.
    """
    engine_options(os.environ.get("MXT_CONTAINER_ARGS", ""))  # wrong for all of them alike
    tried = try_engines()
    for one in tried:
        if one.engine is not None and not one.problem:
            return one.engine
    asked = os.environ.get("MXT_CONTAINER", "")
    raise ToolchainError(
        f"no container engine serves here (MXT_CONTAINER={asked})"
        if asked
        else "no container engine serves here",
        excerpt="\n".join(f"    {t.name}: {t.problem}" for t in tried),
        hint=_INSTALL,
    )


@cache
def try_engines() -> tuple[Tried, ...]:
    """Each engine that may be used here, in the order of preference; none after the first that works."""
    asked = os.environ.get("MXT_CONTAINER", "")
    found = []
    for name in [asked] if asked else ["podman", "docker"]:
        found.append(_try(name))
        if not found[-1].problem:
            break
    return tuple(found)


def _try(name: str) -> Tried:
    path = shutil.which(name)
    if path is None:
        return Tried(name, None, "is not installed")
    said = ask([path, "--version"])
    if said.returncode != 0:
        return Tried(name, None, f"does not work: {last_line(said)}")
    # some systems install podman under docker's name
    kind = "podman" if "podman" in said.stdout.lower() else "docker"
    try:
        options, run_options = engine_options(os.environ.get("MXT_CONTAINER_ARGS", ""))
    except ToolchainError as error:
        return Tried(name, None, error.message)
    # podman's own `info` takes half a second
    probe = ["ps", "--quiet"] if kind == "podman" else ["info", "--format", "{{json .SecurityOptions}}"]
    facts = ask([path, *options, *probe])
    if facts.returncode != 0:
        return Tried(name, None, f"does not work: {last_line(facts)}")
    rootless = os.geteuid() != 0 if kind == "podman" else "rootless" in facts.stdout
    version = said.stdout.strip().partition("\n")[0]
    return Tried(name, Engine(kind, path, options, run_options, rootless, version), "")


def find_image(engine: Engine, image: Image) -> str:
    """The engine's own name (64 hex characters) of the very image that is pinned, whatever tags it bears.

    Raises ToolchainError where it is not here. It is never fetched: it may have tens of gigabytes.
    """
    if not image.pinned:
        raise unpinned(image)
    same_name = []
    for identity, digests, names in _images(engine):
        if image.digest in digests or image.digest == f"sha256:{identity}":
            return _of_architecture(engine, image, identity)
        if any(_same_name(n, image) for n in names):
            same_name += sorted(digests)
    other = f"\n    the image of this name that is here is another: {same_name[0]}" if same_name else ""
    raise ToolchainError(
        f"the image of toolchain '{image.label}' is not on this machine",
        where=image.where,
        excerpt=f"    pinned: {image.reference}{other}",
        hint=f"fetch it: {engine.kind} pull {image.reference}\n"
        "  (mxt does not by itself: such images can have tens of gigabytes)",
    )


def unpinned(image: Image) -> ToolchainError:
    return ToolchainError(
        f"the image of toolchain '{image.label}' is not pinned: '{image.name}' may be another one tomorrow",
        where=image.where,
        hint=f"pin it: mxt toolchain pin {image.label} --write",
    )


def local_digest(engine: Engine, image: Image) -> str:
    """The digest of the image that now bears the name here, for `mxt toolchain pin --local`."""
    said = ask(engine.command("image", "inspect", image.name))
    if said.returncode != 0:
        raise ToolchainError(
            f"{engine.kind} has no image '{image.name}'",
            where=image.where,
            hint=f"{engine.kind} pull {image.name}, or leave out --local to ask the registry",
        )
    facts = json.loads(said.stdout)[0]
    if facts.get("Architecture") != image.arch:
        raise ToolchainError(
            f"{engine.kind} has '{image.name}' for {facts.get('Architecture')}, declared is {image.arch}",
            where=image.where,
        )
    digests = [d.rpartition("@")[2] for d in facts.get("RepoDigests") or ()]
    own = (
        facts.get("Digest") or ""
    )  # podman: of the image itself, where RepoDigests may hold a list's as well
    if own:
        return str(own)
    if digests:
        return str(digests[0])
    identity = str(facts["Id"])  # docker: built here and never pushed
    return identity if identity.startswith("sha256:") else f"sha256:{identity}"


def _images(engine: Engine) -> list[tuple[str, set[str], list[str]]]:
    """(id, digests, names) of every image that the engine has."""
    if engine.kind == "podman":
        said = ask(engine.command("images", "--digests", "--no-trunc", "--format", "json"))
    else:
        said = ask(engine.command("images", "--digests", "--no-trunc", "--format", "{{json .}}"))
    if said.returncode != 0:
        raise ToolchainError(f"{engine.kind} cannot list its images: {last_line(said)}", hint=_INSTALL)
    found: dict[str, tuple[set[str], list[str]]] = {}
    try:
        if engine.kind == "podman":
            for one in json.loads(said.stdout or "[]"):
                digests = {str(one.get("Digest") or "")}
                digests.update(str(d).rpartition("@")[2] for d in one.get("RepoDigests") or ())
                names = [*(one.get("Names") or ()), *(one.get("RepoDigests") or ())]
                found[str(one["Id"])] = (digests - {""}, [str(n) for n in names])
        else:
            for line in said.stdout.splitlines():
                one = json.loads(line)
                digests, names = found.setdefault(str(one["ID"]).removeprefix("sha256:"), (set(), []))
                digests.update(d for d in [str(one.get("Digest", ""))] if d.startswith("sha256:"))
                names.append(f"{one.get('Repository', '')}:{one.get('Tag', '')}")
    except (ValueError, LookupError, TypeError, AttributeError):
        raise ToolchainError(f"{engine.kind} lists its images in a form that mxt does not know") from None
    return [(identity, digests, names) for identity, (digests, names) in found.items()]


def _of_architecture(engine: Engine, image: Image, identity: str) -> str:
    said = ask(engine.command("image", "inspect", "--format", "{{.Os}}/{{.Architecture}}", identity))
    found = said.stdout.strip()
    if found != f"linux/{image.arch}":
        raise ToolchainError(
            f"the image of toolchain '{image.label}' is for {found or 'nothing known'}, declared is "
            f"linux/{image.arch}",
            where=image.where,
            hint=f"{engine.kind} pull --platform linux/{image.arch} {image.reference}",
        )
    here = MACHINES.get(os.uname().machine, os.uname().machine)
    if here != image.arch:
        raise ToolchainError(
            f"the image of toolchain '{image.label}' is for {image.arch}, this machine is {here}",
            where=image.where,
            hint="build on such a machine or fetch results made on one",
        )
    return identity


def _same_name(local: str, image: Image) -> bool:
    """Whether a local image has the name of the pinned one; docker shortens what is from docker.io."""
    found = Image("", local.partition("@")[0], "")
    return (found.registry, found.repository) == (image.registry, image.repository)


def ask(argv: Sequence[str], seconds: float = _SECONDS) -> subprocess.CompletedProcess[str]:
    """Run an engine's command to its end; one that cannot be started or takes too long has failed."""
    try:
        return subprocess.run(
            argv,
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(argv, 125, "", f"no answer within {seconds:.0f} s")
    except OSError as error:
        return subprocess.CompletedProcess(argv, 125, "", f"{error.strerror}")


def last_line(said: subprocess.CompletedProcess[str]) -> str:
    """What a command said of its failure, for a message: its first error, else its last line."""
    lines = (said.stderr.strip() or said.stdout.strip()).splitlines()
    errors = [line for line in lines if line.startswith(("Error: ", "docker: "))]
    chosen = (errors or lines[-1:] or [f"exit status {said.returncode}, no message"])[0]
    return chosen.removeprefix("Error: ").removeprefix("docker: ").strip()[:300]
