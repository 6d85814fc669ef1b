"""Holds an environment against its toolchain lock; remembers what it saw, so that a second look is cheap."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Callable, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any

from mxt.action.installed import Installed, installed
from mxt.action.toolchain_lock import Difference, Distribution, Interpreter, Lock, this_interpreter

_STATE_VERSION = 1

Progress = Callable[[int, int], None]


class Depth(IntEnum):
    """How far a check looks; each includes what stands above it. Times: 108 distributions, 56,000 files.

    RECORDS: what the installer says it installed (2 ms when nothing changed, 0.1 s otherwise).
    FILES: every file still has the stat it had when its contents were last read; a distribution with
    one that has not is read again (0.2 s; a first time as CONTENTS).
    CONTENTS: every file is read and held against the installer's record (seconds).
    """

    RECORDS = 0
    FILES = 1
    CONTENTS = 2


def memory_of(site: Path) -> Path | None:
    """Where checks of this environment remember what they saw: for the user, not for a store, as reading two
    gigabytes once for each new store would be most of what mxt adds to a first build. None without a home."""
    base = os.environ.get("XDG_CACHE_HOME") or ""
    if not os.path.isabs(base):
        base = os.path.expanduser("~/.cache")
    if not os.path.isabs(base):
        return None
    name = hashlib.sha256(os.fsencode(os.path.realpath(site))).hexdigest()[:16]
    return Path(base, "mxt", "environments", f"{name}.json")


def check(
    lock: Lock,
    site: Path,
    *,
    state: Path | None = None,
    depth: Depth = Depth.RECORDS,
    interpreter: Interpreter | None = None,
    progress: Progress | None = None,
) -> list[Difference]:
    """Every difference between a lock and the site-packages folder `site`; empty means it fits.

    state: a file that keeps what was seen between checks (may be missing, damaged or deleted).
    progress: called with (distributions done, all) while contents are read.
    What is installed beside the closure is no difference: actions do not see it.
    """
    here = interpreter or this_interpreter()
    differences = []
    if here != lock.interpreter:
        differences.append(Difference("interpreter", f"is {here}, locked is {lock.interpreter}"))
    try:
        present: dict[str, list[Installed]] = {}
        for one in installed(site):
            present.setdefault(one.name, []).append(one)
    except OSError as problem:
        return [*differences, Difference("site-packages", f"cannot be listed: {site}: {problem.strerror}")]
    seen = _load(state, site)
    before = json.dumps(seen)
    for done, wanted in enumerate(lock.distributions):
        if progress and depth:
            progress(done, len(lock.distributions))
        differences += _check_one(wanted, present.get(wanted.name, []), seen, depth)
    if state and json.dumps(seen) != before:
        _save(state, site, seen)
    return differences


def _check_one(
    wanted: Distribution, found: Sequence[Installed], seen: dict[str, Any], depth: Depth
) -> list[Difference]:
    name, version, digest = wanted
    if not found:
        return [Difference(name, f"is not installed, locked is {version}")]
    if len(found) > 1:
        versions = ", ".join(sorted(f.version for f in found))
        return [Difference(name, f"is installed more than once: {versions}; locked is {version}")]
    one = found[0]
    if one.version != version:
        return [Difference(name, f"is version {one.version}, locked is {version}")]
    try:
        stat = _stat(os.stat(one.record))
        known = seen.get(one.folder)
        if known is None or known["record"] != stat:
            known = seen[one.folder] = {"record": stat, "digest": one.contents_digest(), "files": ""}
        if known["digest"] != digest:
            other = f"{known['digest'][:12]}.., locked is {digest[:12]}.."
            return [Difference(name, f"{version} is installed from other files: {other}")]
        return _check_files(one, known, depth) if depth else []
    except OSError as problem:
        return [Difference(name, f"cannot be read: {problem.filename}: {problem.strerror}")]
    except (ValueError, TypeError):
        return [Difference(name, f"cannot be read: {one.record} is damaged")]


def _check_files(one: Installed, known: dict[str, Any], depth: Depth) -> list[Difference]:
    fingerprint = _fingerprint(one)
    if depth < Depth.CONTENTS and fingerprint == known["files"]:
        return []
    differences = [d for row in one.kept if (d := _check_contents(one, row.path, row.hash))]
    known["files"] = "" if differences else fingerprint
    return differences


def _fingerprint(one: Installed) -> str:
    from blake3 import blake3

    stats = []
    folder = os.open(one.site, os.O_RDONLY)
    try:
        for row in one.kept:
            try:
                stats.append(_stat(os.stat(row.path, dir_fd=folder)))
            except OSError as problem:
                stats.append([problem.errno or 0])
    finally:
        os.close(folder)
    return blake3(repr(stats).encode()).hexdigest()


def _check_contents(one: Installed, path: str, expected: str) -> Difference | None:
    method, _, value = expected.partition("=")
    try:
        with open(one.site / path, "rb") as file:
            actual = hashlib.file_digest(file, method or "sha256").digest()
    except FileNotFoundError:
        return Difference(one.name, f"lacks its file {path}")
    except OSError as problem:
        return Difference(one.name, f"cannot be read: {path}: {problem.strerror}")
    if value and base64.urlsafe_b64encode(actual).rstrip(b"=").decode() != value:
        return Difference(one.name, f"has a changed file: {path}")
    return None


def _stat(stat: os.stat_result) -> list[int]:
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino, stat.st_dev]


def _load(state: Path | None, site: Path) -> dict[str, Any]:
    if state is None:
        return {}
    try:
        form = json.loads(state.read_bytes())
        fits = form["version"] == _STATE_VERSION and form["site"] == os.path.realpath(site)
        seen = form["seen"] if fits else {}
        return {n: {k: e[k] for k in ("record", "digest", "files")} for n, e in seen.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}  # only a memory: without it the check is slower, not different


def _save(state: Path, site: Path, seen: dict[str, Any]) -> None:
    form = {"version": _STATE_VERSION, "site": os.path.realpath(site), "seen": seen}
    aside = state.with_name(f"{state.name}.{os.getpid()}")
    try:
        state.parent.mkdir(parents=True, exist_ok=True)
        aside.write_text(json.dumps(form), encoding="utf-8")
        os.replace(aside, state)
    except OSError:  # a full or read-only disk must not stop a check that succeeded
        aside.unlink(missing_ok=True)
