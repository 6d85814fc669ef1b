"""Python, the environment that stages run in, the sandbox, podman, the compiler, git: each really tried."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from mxt.doctor.finding import FAIL, OK, WARN, Finding
from mxt.errors import MxtError

_CHECKOUT = Path(__file__).resolve().parents[2]
_SHOWN = 3


def software_findings(root: Path | None, *, deep: bool = False) -> Iterator[Finding]:
    """root: the workspace, if there is one."""
    yield Finding(
        "python", OK, f"{platform.python_implementation()} {platform.python_version()} in {sys.prefix}"
    )
    yield from _environment(root, deep=deep)
    yield _sandbox()
    yield _containers()
    yield _compiler()
    yield _git()


def _environment(root: Path | None, *, deep: bool) -> Iterator[Finding]:
    """Every lock of the workspace, or mxt's own, against what is installed."""
    from mxt.action.toolchain_check import Depth, check, memory_of
    from mxt.action.toolchain_lock import read_lock
    from mxt.execution.prepare import site_packages

    site = Path(os.path.realpath(site_packages()))
    base = root if root is not None and (root / "toolchains").is_dir() else _CHECKOUT
    for path in sorted((base / "toolchains").glob("*.lock.json")):
        shown = str(path.relative_to(base)) if base == root else str(path)
        try:
            lock = read_lock(path, shown)
            depth = Depth.CONTENTS if deep else Depth.RECORDS
            differences = check(lock, site, state=memory_of(site), depth=depth)
        except MxtError as error:
            yield Finding("environment", FAIL, str(error).partition("\n")[0], error.hint)
            continue
        if differences:
            listed = "; ".join(str(d) for d in differences[:_SHOWN])
            more = f" and {len(differences) - _SHOWN} more" if len(differences) > _SHOWN else ""
            mend = f"mxt toolchain check --lock {shown} lists all, and says how to put it right"
            yield Finding("environment", FAIL, f"differs from {shown}: {listed}{more}", mend)
        else:
            looked = ", every file read" if deep else ""
            yield Finding("environment", OK, f"{len(lock.distributions)} packages as in {shown}{looked}")


def _sandbox() -> Finding:
    from mxt.execution.sandbox import View, command

    if os.environ.get("MXT_SANDBOX") == "none":
        return Finding("sandbox", WARN, "MXT_SANDBOX=none turns it off", "unset MXT_SANDBOX")
    path = shutil.which("bwrap", path=os.environ.get("PATH", "") + ":/usr/bin:/usr/local/bin")
    if path is None:
        what = "bubblewrap is not installed: actions run on copies of their inputs, without isolation"
        return Finding("sandbox", WARN, what, "apt-get install bubblewrap")
    done = _run([*command(path, View(chdir="/")), "/usr/bin/true"])
    if done is None or done.returncode != 0:
        said = done.stderr.strip().splitlines() if done is not None else ["it does not answer"]
        why = said[-1] if said else "no message"
        what = f"bubblewrap is not permitted here ({why}): actions run without isolation"
        return Finding("sandbox", WARN, what, _permit())
    version = _run([path, "--version"])
    return Finding("sandbox", OK, f"{version.stdout.strip() if version else 'bubblewrap'}, tried")


def _containers() -> Finding:
    """podman and docker are needed for toolchains that are images, and for nothing else."""
    from mxt.execution.engine import try_engines

    tried = try_engines()
    for one in tried:
        if one.engine is not None:
            whose = "rootless" if one.engine.rootless else "as root"
            return Finding("containers", OK, f"{one.engine.version}, {whose}, tried")
    said = "; ".join(f"{one.name} {one.problem}" for one in tried)
    if all(one.problem == "is not installed" for one in tried) and not os.environ.get("MXT_CONTAINER"):
        return Finding(
            "containers", OK, "neither podman nor docker; only toolchains that are images need one"
        )
    mend = "apt-get install podman; MXT_CONTAINER and MXT_CONTAINER_ARGS choose an engine and its options"
    return Finding("containers", WARN, f"toolchains that are images cannot run: {said}", mend)


def _permit() -> str:
    """What forbids unprivileged user namespaces, as far as can be told."""
    for name, value, mend in (
        (
            "kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        ("kernel/unprivileged_userns_clone", "0", "sysctl -w kernel.unprivileged_userns_clone=1"),
        ("user/max_user_namespaces", "0", "sysctl -w user.max_user_namespaces=15000"),
    ):
        try:
            if Path("/proc/sys", name).read_text("ascii").strip() == value:
                return f"allow user namespaces: {mend}"
        except OSError:
            continue
    return "in a container: start it with --security-opt seccomp=unconfined, or as privileged"


def _compiler() -> Finding:
    """g++ with Python's headers: what compiled kernels and extensions need."""
    compiler = os.environ.get("CXX") or "g++"
    if shutil.which(compiler) is None:
        what = f"'{compiler}' is missing: compiled kernels and extensions fail"
        return Finding("compiler", WARN, what, "apt-get install g++")
    include = sysconfig.get_path("include")
    with tempfile.TemporaryDirectory(prefix="mxt-doctor-") as folder:
        source = Path(folder, "probe.cpp")
        source.write_text("#include <Python.h>\n#include <vector>\nint main() { return 0; }\n")
        done = _run([compiler, "-std=c++17", "-fsyntax-only", f"-I{include}", str(source)])
    if done is not None and done.returncode == 0:
        version = _run([compiler, "-dumpfullversion"])
        number = f" {version.stdout.strip()}" if version is not None and version.returncode == 0 else ""
        return Finding("compiler", OK, f"{compiler}{number} with Python's headers, tried")
    if not Path(include, "Python.h").exists():
        what = f"Python's headers are not in {include}: compiled kernels and extensions fail"
        return Finding(
            "compiler", WARN, what, f"apt-get install python{sys.version_info[0]}.{sys.version_info[1]}-dev"
        )
    said = done.stderr.strip().splitlines() if done is not None else []
    what = f"{compiler} cannot compile: {said[0] if said else 'it does not answer'}"
    return Finding("compiler", WARN, what, "apt-get install --reinstall g++")


def _git() -> Finding:
    done = _run(["git", "--version"])
    if done is None or done.returncode != 0:
        what = "git is missing: a workspace's ./mxtw fetches mxt with it"
        return Finding("git", WARN, what, "apt-get install git")
    return Finding("git", OK, done.stdout.strip().removeprefix("git version "))


def _run(argv: Sequence[str]) -> subprocess.CompletedProcess[str] | None:
    """The command's end, or None where it cannot be started or does not come to one."""
    try:
        return subprocess.run(
            argv,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=20,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
