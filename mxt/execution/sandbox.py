"""The sandbox: a bubblewrap command line that shows an action its declared inputs and nothing else."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from mxt.execution.warden import MARK

EXEC_ROOT = "/mxt/exec"
CODE_ROOT = "/mxt/code"
SHARED_ROOT = "/mxt"  # evidence, progress and accelerants
SITE_ROOT = "/mxt/site"
PRIVATE_TMP = "/tmp"  # noqa: S108 - a tmpfs of the sandbox's own, not the machine's

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_SYSTEM_FILES = ("/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d")
# a fresh /proc takes writes to these from whoever is root outside
_KERNEL = [
    word
    for name in ("sys", "irq", "bus", "sysrq-trigger")
    for word in ("--ro-bind-try", *[f"/proc/{name}"] * 2)
]
_NETWORK_FILES = (
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/ssl",
    "/etc/ca-certificates",
    "/etc/pki",
)


@dataclass(frozen=True)
class View:
    """What an action may see. read_only, writable: (path on the host, path inside).

    devices: device nodes. network: keep the host's network. chdir: where the command starts.
    environment: variables for the command that bubblewrap itself is not to have; nothing secret, as every
    process sees another's command line.
    """

    read_only: Sequence[tuple[str, str]] = ()
    writable: Sequence[tuple[str, str]] = ()
    devices: Iterable[str] = ()
    network: bool = False
    chdir: str = EXEC_ROOT
    closed: Sequence[str] = field(default=(EXEC_ROOT,))
    environment: Mapping[str, str] = field(default_factory=dict)


@cache
def bubblewrap() -> str | None:
    """The path of a bwrap that works here, or None (not installed, or user namespaces are forbidden)."""
    if os.environ.get("MXT_SANDBOX", "") == "none":
        return None
    path = shutil.which("bwrap", path=os.environ.get("PATH", "") + ":/usr/bin:/usr/local/bin")
    if path is None:
        return None
    import subprocess

    probe = [*command(path, View(chdir="/")), "/usr/bin/true"]
    try:
        worked = subprocess.run(probe, capture_output=True, timeout=10, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        worked = False
    return path if worked else None


@cache
def _system() -> list[str]:
    args: list[str] = []
    for path in _SYSTEM:
        try:
            mode = os.lstat(path).st_mode
        except OSError:
            continue
        if stat.S_ISLNK(mode):
            args += ["--symlink", os.readlink(path), path]
        else:
            args += ["--ro-bind", path, path]
    for path in _SYSTEM_FILES:
        args += ["--ro-bind-try", path, path]
    return args


def command(bwrap: str, view: View) -> list[str]:
    """The bwrap prefix for a view; the action's own command follows it."""
    args = [bwrap, "--unshare-all", "--die-with-parent", "--new-session", "--hostname", "mxt"]
    args += ["--uid", "1000", "--gid", "1000", "--unsetenv", MARK]
    for name, value in view.environment.items():
        args += ["--setenv", name, value]
    if view.network:
        args.append("--share-net")
        for path in _NETWORK_FILES:
            args += ["--ro-bind-try", path, path]
    args += _system()
    args += [
        "--proc",
        "/proc",
        *_KERNEL,
        "--dev",
        "/dev",
        "--tmpfs",
        PRIVATE_TMP,
        "--dir",
        f"{PRIVATE_TMP}/home",
    ]
    for device in view.devices:
        args += ["--dev-bind-try", device, device]
    for path in view.closed:
        args += ["--tmpfs", path]
    for host, inside in view.read_only:
        args += ["--ro-bind", host, inside]
    for host, inside in view.writable:
        args += ["--bind", host, inside]
    for path in view.closed:
        args += ["--remount-ro", path]
    return [*args, "--remount-ro", "/", "--chdir", view.chdir]


def interpreter_binds() -> list[tuple[str, str]]:
    """What the running interpreter needs beside /usr: its own prefix, where that is elsewhere."""
    prefix = os.path.realpath(sys.base_prefix)
    return [] if prefix == "/usr" or prefix.startswith("/usr/") else [(prefix, prefix)]


def interpreter() -> str:
    """The interpreter itself, not the virtual environment's link to it."""
    return os.path.realpath(
        Path(sys.base_prefix) / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    )
