"""The disk under the store, what crashed builds left in it, the signing key, and the trust in own rules."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from mxt.doctor.finding import FAIL, OK, WARN, Finding
from mxt.doctor.machine import SKEW_S, folder_clock_skew
from mxt.errors import MxtError
from mxt.loading.workspace import Workspace

_FICLONE = 0x40049409
_NETWORK = ("nfs", "nfs4", "cifs", "smb3", "9p", "afs", "fuse.sshfs", "fuse.s3fs", "fuse.gcsfuse")
WARN_BYTES, FAIL_BYTES = 5 << 30, 256 << 20
_LEAST_INODES = 10_000


def store_findings(workspace: Workspace) -> Iterator[Finding]:
    """Writes only inside a temporary folder beside what the store writes, and removes it."""
    place = _existing(workspace.store)
    yield _space(place)
    try:
        with tempfile.TemporaryDirectory(dir=place, prefix=".mxt-doctor-") as text:
            yield from _file_system(Path(text), place)
    except OSError as error:
        what = f"nothing can be written in {place}: {(error.strerror or str(error)).lower()}"
        yield Finding("disk", FAIL, what, "make it writable, or name another store with --store")
    yield from _leftovers(workspace.store)


def key_finding(workspace: Workspace | None) -> Finding:
    """The operator's key; none is made."""
    from mxt.store.signing import key_path, load_or_create_key

    try:
        path = key_path()
        if not os.path.lexists(path):
            return Finding("key", OK, f"none yet; the first build makes {path}")
        places = [workspace.root, workspace.store] if workspace is not None else []
        key = load_or_create_key(keep_out_of=places)
    except MxtError as error:
        return Finding("key", FAIL, f"{error.where}: {error.message}".removeprefix(": "), error.hint)
    return Finding("key", OK, f"{path}, mode 0600, signs as {key.keyid[:12]}")


def trust_finding(workspace: Workspace) -> Finding:
    """Whether the workspace's own rules may run; none of them does here."""
    from mxt.loading.rule_modules import own_rules
    from mxt.loading.trust import check_trust, rule_digests

    folder = own_rules(workspace)
    if folder is None:
        return Finding("trust", OK, "this workspace has no rules of its own")
    try:
        digests = rule_digests(folder)
        check_trust(workspace.root, digests)
    except MxtError as error:
        return Finding("trust", WARN, error.message, error.hint)
    return Finding("trust", OK, f"{len(digests)} files of its own rules, as they were trusted")


def _existing(path: Path) -> Path:
    while not path.is_dir():
        path = path.parent
    return path


def _space(place: Path) -> Finding:
    disk = os.statvfs(place)
    free, whole = disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
    what = f"{free / (1 << 30):.1f} GiB of {whole / (1 << 30):.1f} GiB free for the store in {place}"
    mend = "make room (`mxt gc` removes what no target uses), or name another store with --store"
    # file systems that make inodes as they need them say 0
    if disk.f_files and disk.f_favail < _LEAST_INODES:
        return Finding(
            "disk",
            FAIL if disk.f_favail < 100 else WARN,
            f"only {disk.f_favail} files may be made in {place}",
            mend,
        )
    return (
        Finding("disk", FAIL, what, mend)
        if free < FAIL_BYTES
        else Finding("disk", WARN, what, mend)
        if free < WARN_BYTES
        else Finding("disk", OK, what)
    )


def _file_system(folder: Path, place: Path) -> Iterator[Finding]:
    kind = _kind(place)
    one = folder / "a"
    one.write_bytes(b"x" * 4096)
    facts = [kind]
    try:
        os.link(one, folder / "link")
        facts.append("hard links")
    except OSError as error:
        what = (
            f"no hard links ({(error.strerror or '').lower()}): outputs are copied, which takes time and room"
        )
        yield Finding("disk", WARN, what, "keep the store on a file system of Linux's own: --store DIR")
    facts.append(
        "shared copies" if _clones(one, folder / "clone") else "no shared copies, which only costs room"
    )
    if (folder / "A").exists():
        what = "names that differ in case only are one file here: outputs may collide"
        yield Finding("disk", WARN, what, "keep workspace and store on a file system that tells them apart")
    if kind in _NETWORK:
        what = f"the store is on a network file system ({kind}): locks may not hold between machines"
        yield Finding("disk", WARN, what, "keep it on a local disk: --store DIR, or MXT_STORE")
    elif kind in ("tmpfs", "ramfs"):
        yield Finding(
            "disk", WARN, f"the store is in memory ({kind})", "it is gone after a restart: --store DIR"
        )
    skew = folder_clock_skew(folder)
    if abs(skew) > SKEW_S:
        side = "ahead of" if skew > 0 else "behind"
        what = f"new files there are {abs(skew):.0f} s {side} this machine's clock"
        yield Finding("clock", WARN, what, "set both clocks by NTP; files are hashed again until they agree")
    yield Finding("disk", OK, ", ".join(facts))


def _clones(source: Path, dest: Path) -> bool:
    with open(source, "rb") as read, open(dest, "wb") as write:
        try:
            fcntl.ioctl(write, _FICLONE, read.fileno())
        except OSError:
            return False
    return True


def _kind(place: Path) -> str:
    """The type of the file system that holds a folder, by the longest mount point above it."""
    real = os.path.realpath(place)
    best, kind = "", "an unknown file system"
    with (
        contextlib.suppress(OSError),
        open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file,
    ):
        for line in file:
            before, _, after = line.partition(" - ")
            point = before.split()[4].encode().decode("unicode_escape", "replace")
            inside = real == point or real.startswith(point.rstrip("/") + "/")
            if inside and len(point) >= len(best):
                best, kind = point, after.split()[0]
    return kind


def _leftovers(store: Path) -> Iterator[Finding]:
    """What builds that were killed left behind; nothing is removed."""
    from mxt.store.layout import Layout

    if not store.is_dir():
        return
    layout = Layout(store)
    dead = [name for name in _listing(layout.tmp) if not _lives(name.partition("-")[0])]
    if dead:
        what = f"{len(dead)} leftover{'s' if len(dead) > 1 else ''} of builds that were killed"
        yield Finding("leftovers", WARN, what, "mxt gc")
    else:
        yield Finding("leftovers", OK, "none of builds that were killed")
    if damaged := _listing(layout.quarantine):
        what = (
            f"{len(damaged)} damaged file{'s' if len(damaged) > 1 else ''} set aside in {layout.quarantine}"
        )
        yield Finding("leftovers", WARN, what, "the disk may be failing: `mxt cache check` reads everything")
    unfinished = [name for name in _listing(layout.root / "progress") if _listing(layout.progress(name))]
    if unfinished:
        plural = "s" if len(unfinished) > 1 else ""
        yield Finding(
            "leftovers", OK, f"{len(unfinished)} unfinished action{plural} will resume where it stopped"
        )


def _listing(folder: Path) -> list[str]:
    try:
        return [name for name in os.listdir(folder) if not name.startswith(".")]
    except OSError:
        return []


def _lives(pid: str) -> bool:
    return pid.isdigit() and Path("/proc", pid).exists()
