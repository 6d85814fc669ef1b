"""Lays out one action: its execution root, what it may see, its environment and its command line."""

from __future__ import annotations

import json
import os
import shutil
import stat
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from blake3 import blake3

from mxt.action.action import Action, SliceRef, SourceRef
from mxt.action.canonical import canonical
from mxt.errors import ActionError
from mxt.execution.devices import device_nodes
from mxt.execution.sandbox import (
    CODE_ROOT,
    EXEC_ROOT,
    PRIVATE_TMP,
    SHARED_ROOT,
    View,
    bubblewrap,
    command,
    interpreter,
    interpreter_binds,
)

STAGING_THRESHOLD = 64
_SMALL = 1 << 20  # bytes
_BASE_ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "LC_ALL": "C.UTF-8",
    "TZ": "UTC",
    "SOURCE_DATE_EPOCH": "0",
}
_PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE")


@dataclass(frozen=True)
class Code:
    """Where Python stages find their code.

    site: the folder of importable packages on the host; site_inside: the same in a sandbox, which gets
    `mounts` (host, inside) read-only. rules: the folder that holds the package `rules`. engine: the folder
    that holds the package `mxt`. own_rules: a folder with the files of a workspace's own rule.
    """

    site: str
    site_inside: str
    mounts: Sequence[tuple[str, str]]
    rules: str
    engine: str
    own_rules: str | None = None


@dataclass
class Layout:
    """A prepared action. argv, env, cwd: to start. outputs: where its outputs appear on the host.

    root: the temporary folder to delete afterwards. private: texts that no output may contain.
    sandbox: "bubblewrap", "podman", "docker" or "none". base: the execution root as the action sees it.
    origins: for each source its place below base -> its path in the workspace. reports: whether it is given
    a descriptor to report on, whose number differs each time and so is kept out of the environment of a
    genrule. fifo: where it reports instead, if no descriptor can be handed to it. options: what the user gave
    the container engine, to be recorded with the run.
    """

    argv: list[str]
    env: dict[str, str]
    cwd: str
    root: Path
    outputs: Path
    sandbox: str
    private: tuple[str, ...]
    base: str
    origins: dict[str, str] = field(default_factory=dict)
    reports: bool = True
    fifo: Path | None = None
    options: str = ""


def prepare(
    action: Action,
    *,
    workspace: Path,
    root: Path,
    places: Mapping[str, Path],
    evidence: Path,
    progress: Path | None,
    accelerants: Path | None,
    code: Code | None,
    platform: Mapping[str, object],
    sandboxed: bool,
) -> Layout:
    """Lay out an action below root, an empty folder. places: where each input lies, by input name."""
    bwrap = bubblewrap() if sandboxed else None
    outputs = root / "outputs"
    folders = Folders(root)
    folders.make("outputs")
    place = "outputs" if bwrap else f"outputs/{action.outputs_at}"
    made = root / place
    folders.make(place)
    for output in action.outputs:
        path = f"{place}/{output.path}"
        folders.make(path if output.kind == "dir" else path.rpartition("/")[0])
    base = EXEC_ROOT if bwrap else str(outputs)
    tmp = PRIVATE_TMP if bwrap else str(root / "tmp")
    # the sandbox gives keyed variables to the action alone: bubblewrap itself runs on the host, and would
    # load what LD_PRELOAD or LD_LIBRARY_PATH names there
    env = surroundings_of(action, tmp) if bwrap else environment_of(action, tmp)
    shared = [("evidence", evidence), ("progress", progress), ("accelerants", accelerants)]
    # beside the execution root: a package may be called "evidence", and its sources lie at their own paths
    inside = {n: (f"{SHARED_ROOT}/{n}" if bwrap else str(p)) if p else "" for n, p in shared}
    origins = {i.path: i.ref.path for i in action.inputs if isinstance(i.ref, (SourceRef, SliceRef))}

    read_only: list[tuple[str, str]] = []
    staged = root / "inputs"
    if bwrap and len(action.inputs) <= STAGING_THRESHOLD:
        for item in action.inputs:
            host = places[item.name]
            if isinstance(item.ref, SliceRef):
                host = cut_slice(item.ref, host, staged / f"{len(read_only)}")
            read_only.append((str(host), f"{EXEC_ROOT}/{item.path}"))
    else:
        stage = "inputs" if bwrap else "outputs"
        for item in action.inputs:
            folders.make(f"{stage}/{item.path}".rpartition("/")[0])
            copy_input(item.ref, places[item.name], root / stage / item.path)
        if bwrap:
            read_only.append((str(staged), EXEC_ROOT))
            (staged / action.outputs_at).mkdir(parents=True, exist_ok=True)

    if action.entry == "genrule":
        argv = ["/usr/bin/bash", "-euo", "pipefail", "-c", str(action.params["cmd"])]
    else:
        assert code is not None
        engine = code.engine
        if bwrap:
            read_only += interpreter_binds()
            read_only += code.mounts
            read_only += [
                (f"{code.engine}/mxt", f"{CODE_ROOT}/mxt"),
                (f"{code.rules}/rules", f"{CODE_ROOT}/rules"),
            ]
            if code.own_rules:
                read_only.append((code.own_rules, f"{CODE_ROOT}/own/rules"))
            site = [code.site_inside, CODE_ROOT]
            engine = CODE_ROOT
        else:
            site = [code.site, code.rules, code.engine]
        task = root / "task.json"
        own = f"{CODE_ROOT}/own/rules" if bwrap and code.own_rules else code.own_rules
        write_task(task, action, base, inside, site, platform, own or "")
        argv = [interpreter(), "-s", "-P", "-S", f"{engine}/mxt/execution/inside.py"]
        argv.append(f"{EXEC_ROOT}/.task.json" if bwrap else str(task))
        if bwrap:
            read_only.append((str(task), f"{EXEC_ROOT}/.task.json"))
            if staged.exists():
                (staged / ".task.json").touch()
    reports = action.entry != "genrule"
    private = (str(workspace), EXEC_ROOT if bwrap else str(outputs))
    if bwrap is None:
        folders.make("tmp/home")
        return Layout(argv, env, str(outputs), root, made, "none", private, base, origins, reports)
    writable = [(str(outputs), f"{EXEC_ROOT}/{action.outputs_at}")]
    writable += [(str(p), inside[n]) for n, p in shared if p]
    staged_root = any(inside == EXEC_ROOT for _, inside in read_only)
    view = View(
        read_only=read_only,
        writable=writable,
        devices=device_nodes(platform),
        network=action.network,
        closed=() if staged_root else (EXEC_ROOT,),
        environment=action.environment,
    )
    return Layout(
        [*command(bwrap, view), *argv], env, "/", root, outputs, "bubblewrap", private, base, origins, reports
    )


def environment_of(action: Action, tmp: str) -> dict[str, str]:
    """All that an action's process starts with: what is in the key wins, whatever the host has."""
    return surroundings_of(action, tmp) | dict(action.environment)


def surroundings_of(action: Action, tmp: str) -> dict[str, str]:
    """The variables that are in no key: mxt's own for every action, and what it may take from the host."""
    env = {**_BASE_ENVIRONMENT, "HOME": f"{tmp}/home", "TMPDIR": tmp}
    if action.entry != "genrule":
        env |= {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", "USER": "mxt", "LOGNAME": "mxt"}
    if action.network:
        for name in (*action.passthrough, *_PROXIES):
            if name in os.environ:
                env[name] = os.environ[name]
    return env


def write_task(
    path: Path,
    action: Action,
    base: str,
    inside: Mapping[str, str],
    site: Sequence[str],
    platform: Mapping[str, object],
    own_rules: str,
    *,
    container: Mapping[str, object] | None = None,
) -> None:
    """What inside.py is told. container: what it must do itself there: see `mxt/execution/container.py`."""
    unkeyed = dict(action.unkeyed)
    lists = unkeyed.pop("mxt.lists", {})
    threads = platform.get("threads")
    task = {
        "entry": action.entry,
        "path": list(site),
        "own_rules": own_rules,
        "params": canonical(action.params),
        "config": canonical(dict(action.config)),
        "unkeyed": canonical(unkeyed),
        "lists": lists,
        "inputs": {i.name: f"{base}/{i.path}" for i in action.inputs},
        "outputs": {o.name: f"{base}/{action.outputs_at}/{o.path}" for o in action.outputs},
        "platform": canonical(dict(platform)),
        "threads": threads if isinstance(threads, int) else 1,
        **inside,
        **({"container": dict(container)} if container else {}),
    }
    path.write_text(json.dumps(task), encoding="utf-8")


def cut_slice(ref: SliceRef, source: Path, folder: Path) -> Path:
    """Write a slice of a source where the action will find it under the source's own name.

    Raises ActionError where the source is no longer what was keyed.
    """
    folder.mkdir(parents=True)
    target = folder / source.name
    hasher = blake3()
    with source.open("rb") as src, target.open("wb") as dst:
        src.seek(ref.offset)
        left = ref.length
        while left:
            chunk = src.read(min(left, 1 << 20))
            if not chunk:
                break
            dst.write(chunk)
            hasher.update(chunk)
            left -= len(chunk)
    if hasher.hexdigest() != ref.digest:
        raise ActionError(f"its input '{ref.path}' changed during the build", hint="build again")
    target.chmod(0o444)
    return target


class Folders:
    """Makes folders below a fresh one, each once: from the top, without asking what is there."""

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        self._made = {""}

    def make(self, path: str) -> None:
        """path: relative to the root, with no ".." in it."""
        if path in self._made:
            return
        self.make(path.rpartition("/")[0])
        try:
            os.mkdir(f"{self._root}/{path}")
        except FileExistsError:  # in a folder that is an input itself
            pass
        self._made.add(path)


def copy_input(ref: object, source: Path, target: Path) -> None:
    """Bytes and mode, as the key has them; the time of a source is in no key and is not handed on."""
    if isinstance(ref, SliceRef):
        cut = cut_slice(ref, source, target.parent / f".{target.name}.cut")
        cut.rename(target)
        cut.parent.rmdir()
    elif source.is_dir():
        shutil.copytree(source, target, symlinks=True)
    else:
        with open(source, "rb") as reader:
            facts = os.fstat(reader.fileno())
            if facts.st_size <= _SMALL:
                with open(target, "xb", buffering=0) as writer:
                    writer.write(reader.read())
            else:
                shutil.copyfile(source, target)
        if facts.st_mode & stat.S_IXUSR:
            os.chmod(target, 0o755)  # noqa: S103 - what an executable of the user's own has


def engine_folder() -> str:
    """The folder that holds the package `mxt`."""
    import mxt

    return os.path.dirname(os.path.dirname(os.path.abspath(mxt.__file__)))


def site_packages() -> str:
    """The site-packages of the environment that runs mxt."""
    import sysconfig

    return sysconfig.get_path("purelib", vars={"base": sys.prefix, "platbase": sys.prefix})
