"""Lays out an action that runs in a container: the same view as in the sandbox, in an image's own system.

The root is the image's, read-only. At /mxt lies a folder of mount points, made for this action; over them
come its inputs, the folders that it may write, and mxt's code. mxt's keeper starts the container and ends it
(see keeper.py).
"""

from __future__ import annotations

import csv
import io
import json
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from mxt.action.action import Action, SliceRef, SourceRef
from mxt.errors import ToolchainError
from mxt.execution.devices import container_devices, device_groups, device_nodes
from mxt.execution.engine import Engine
from mxt.execution.image_look import Container
from mxt.execution.limits import limit_options
from mxt.execution.machine import memory_mb
from mxt.execution.owner import OWNER_LABEL, STORE_LABEL, this_owner
from mxt.execution.prepare import (
    STAGING_THRESHOLD,
    Code,
    Folders,
    Layout,
    copy_input,
    cut_slice,
    environment_of,
    write_task,
)
from mxt.execution.sandbox import CODE_ROOT, EXEC_ROOT, PRIVATE_TMP, SHARED_ROOT, interpreter

_REPORT = f"{SHARED_ROOT}/report"
_LOG = f"{SHARED_ROOT}/evidence/log.txt"
# what engines add to the environment, one this and one that; and what the shell itself adds
_ADDED = ("MXT_ACTION", "container", "HOSTNAME", "TERM", "SHLVL", "OLDPWD")
# the container's first process stays: with it all others end. It writes to the log itself, so that the lines
# of its two streams keep their order, and the engine's own words stay apart from them.
_SHELL = f'umask 022; exec >> {_LOG} 2>&1; bash -euo pipefail -c "$1"; exit $?'


def prepare_container(
    action: Action,
    *,
    container: Container,
    store: str,
    workspace: Path,
    root: Path,
    places: Mapping[str, Path],
    evidence: Path,
    progress: Path | None,
    accelerants: Path | None,
    code: Code | None,
    platform: Mapping[str, object],
) -> Layout:
    """Lay out an action below root, an empty folder. places: where each input lies, by input name."""
    folders = Folders(root)
    outputs = root / "outputs"
    folders.make("outputs")
    for output in action.outputs:
        path = f"outputs/{output.path}"
        folders.make(path if output.kind == "dir" else path.rpartition("/")[0])
    folders.make(f"mxt/exec/{action.outputs_at}")
    mounts = [_bind(root / "mxt", SHARED_ROOT, writable=False)]
    mounts += _inputs(action, places, root, folders)
    mounts.append(_bind(outputs, f"{EXEC_ROOT}/{action.outputs_at}", writable=True))
    shared = [("evidence", evidence), ("progress", progress), ("accelerants", accelerants)]
    for name, host in shared:
        if host is not None:
            folders.make(f"mxt/{name}")
            mounts.append(_bind(host, f"{SHARED_ROOT}/{name}", writable=True))
    inside = {name: f"{SHARED_ROOT}/{name}" if host else "" for name, host in shared}

    environment = environment_of(action, PRIVATE_TMP)
    if "PATH" not in action.environment:
        del environment["PATH"]  # the image's
    unset = [name for name in _ADDED if name not in environment]
    fifo = None
    if code is None:
        # this shell has counted itself
        level = environment.get("SHLVL")
        before = f"unset {' '.join(unset)}; " + (f"SHLVL={shlex.quote(level)}; " if level is not None else "")
        argv = ["bash", "-c", before + _SHELL, "mxt", str(action.params["cmd"])]
    else:
        fifo = root / "report"
        os.mkfifo(fifo, 0o600)
        mounts.append(_mount_file(root, "mxt/report", fifo, _REPORT, writable=True))
        for source, place in ((f"{code.engine}/mxt", "mxt"), (f"{code.rules}/rules", "rules")):
            folders.make(f"mxt/code/{place}")
            mounts.append(_bind(Path(source), f"{CODE_ROOT}/{place}", writable=False))
        own = ""
        if code.own_rules:
            own = f"{CODE_ROOT}/own/rules"
            folders.make("mxt/code/own/rules")
            mounts.append(_bind(Path(code.own_rules), own, writable=False))
        task = root / "task.json"
        contained = {"log": _LOG, "report": _REPORT, "unset": unset}
        write_task(task, action, EXEC_ROOT, inside, [CODE_ROOT], platform, own, container=contained)
        mounts.append(
            _mount_file(root, "mxt/exec/.task.json", task, f"{EXEC_ROOT}/.task.json", writable=False)
        )
        argv = ["python3", "-s", f"{CODE_ROOT}/mxt/execution/inside.py", f"{EXEC_ROOT}/.task.json"]

    spec = _spec(container, action, platform, mounts, environment, root, store, argv)
    (root / "container.json").write_text(json.dumps(spec), encoding="utf-8")
    keeper = [
        interpreter(),
        "-I",
        "-S",
        str(Path(__file__).with_name("keeper.py")),
        str(root / "container.json"),
    ]
    return Layout(
        keeper,
        {name: os.environ[name] for name in _HOST if name in os.environ},
        "/",
        root,
        outputs,
        container.engine.kind,
        (str(workspace), EXEC_ROOT),
        EXEC_ROOT,
        {i.path: i.ref.path for i in action.inputs if isinstance(i.ref, (SourceRef, SliceRef))},
        fifo=fifo,
        options=os.environ.get("MXT_CONTAINER_ARGS", "").strip(),
    )


# what an engine needs of the user's environment to find its own files and its daemon
_HOST = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "TMPDIR",
    "XDG_RUNTIME_DIR",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_CACHE_HOME",
    "DBUS_SESSION_BUS_ADDRESS",
    "DOCKER_HOST",
    "DOCKER_CONTEXT",
    "DOCKER_CONFIG",
    "DOCKER_CERT_PATH",
    "DOCKER_TLS_VERIFY",
    "CONTAINER_HOST",
    "CONTAINERS_CONF",
    "CONTAINERS_STORAGE_CONF",
    "STORAGE_DRIVER",
)


def _spec(
    container: Container,
    action: Action,
    platform: Mapping[str, object],
    mounts: Sequence[str],
    environment: Mapping[str, str],
    root: Path,
    store: str,
    argv: Sequence[str],
) -> dict[str, object]:
    """What the keeper is told: the engine's command lines, without the container's name."""
    engine = container.engine
    run = [
        "run",
        "--rm",
        "--pull",
        "never",
        "--log-driver",
        "none",
        "--hostname",
        "mxt",
        "--workdir",
        EXEC_ROOT,
    ]
    run += ["--label", f"{STORE_LABEL}={store}", "--label", f"{OWNER_LABEL}={this_owner()}"]
    run += ["--read-only", "--cap-drop", "all", "--security-opt", "no-new-privileges"]
    run += ["--security-opt", "label=disable"]  # the mounts are the user's own files, which keep their labels
    run += ["--tmpfs", f"{PRIVATE_TMP}:rw,exec,mode=1777", "--tmpfs", f"{PRIVATE_TMP}/home:rw,exec,mode=0755"]
    # /dev/shm, which data loaders and collectives fill; pages that are not used cost nothing
    run += ["--ipc", "private", "--shm-size", f"{max(64, memory_mb() // 2)}m", "--pids-limit", "-1"]
    run += ["--network", "host" if action.network else "none"]
    run += limit_options(engine)
    if engine.kind == "podman":
        run += [
            "--read-only-tmpfs=false",
            "--http-proxy=false",
            "--image-volume",
            "ignore",
            "--no-healthcheck",
        ]
        run += ["--sig-proxy=false"]
    run += _user(engine, platform)
    for device in container_devices(platform):
        run += ["--device", device]
    for mount in mounts:
        run += ["--mount", mount]
    run += _environment_options(environment, root / "environment")
    run += [*engine.run_options, "--entrypoint", argv[0]]
    return {
        "engine": [engine.path, *engine.options],
        "kind": engine.kind,
        "run": run,
        "command": [container.image, *argv[1:]],
        "said": str(root / "engine.log"),
    }


def _user(engine: Engine, platform: Mapping[str, object]) -> list[str]:
    """Who the action is: somebody whose files are the user's outside.

    In a rootless container that is root, who has no capability there and is nobody but the user outside.
    Another identity inside would make the engine copy every layer of the image to change its owners.
    """
    groups = device_groups(device_nodes(platform))
    if engine.kind == "podman":
        keep = (
            ["--group-add", "keep-groups"]
            if groups and engine.rootless and "runc" not in engine.options
            else []
        )
        return ["--user", "0:0", *keep, *([] if engine.rootless else _joined(groups))]
    if engine.rootless:
        return ["--user", "0:0"]
    return ["--user", f"{os.getuid()}:{os.getgid()}", *_joined(groups)]


def _joined(groups: Sequence[int]) -> list[str]:
    return [word for group in groups for word in ("--group-add", str(group))]


def _inputs(action: Action, places: Mapping[str, Path], root: Path, folders: Folders) -> list[str]:
    """Mount each input at its place; many are copied there instead."""
    mounts = []
    for number, item in enumerate(action.inputs):
        host, inside = places[item.name], f"mxt/exec/{item.path}"
        folders.make(inside.rpartition("/")[0])
        if len(action.inputs) > STAGING_THRESHOLD:
            copy_input(item.ref, host, root / inside)
            continue
        if isinstance(item.ref, SliceRef):
            host = cut_slice(item.ref, host, root / "inputs" / str(number))
        if os.path.isdir(host):
            folders.make(inside)
            mounts.append(_bind(host, f"{EXEC_ROOT}/{item.path}", writable=False))
        else:
            mounts.append(_mount_file(root, inside, host, f"{EXEC_ROOT}/{item.path}", writable=False))
    return mounts


def _mount_file(root: Path, point: str, host: Path, inside: str, *, writable: bool) -> str:
    (root / point).touch()
    return _bind(host, inside, writable=writable)


def _bind(host: Path, inside: str, *, writable: bool) -> str:
    """The value of --mount: engines read it as a line of CSV, so a path may hold commas and quotes."""
    source = os.path.realpath(host)
    if "\n" in source or "\r" in source:
        raise ToolchainError("a container cannot be given a path with a line break in it", where=repr(source))
    line = io.StringIO()
    fields = ["type=bind", f"src={source}", f"dst={inside}", *([] if writable else ["ro"])]
    csv.writer(line, lineterminator="").writerow(fields)
    return line.getvalue()


def _environment_options(environment: Mapping[str, str], file: Path) -> list[str]:
    """By a file that only the user reads, as every process sees another's command line."""
    # a line ends at a line break, and what is read of it has lost a carriage return before that
    lines = {n: v for n, v in environment.items() if "\n" not in v and "\r" not in v}
    file.touch(0o600)
    file.write_text("".join(f"{name}={value}\n" for name, value in lines.items()), encoding="utf-8")
    options = ["--env-file", str(file)]
    for name in environment.keys() - lines.keys():
        options += ["--env", f"{name}={environment[name]}"]
    return options
