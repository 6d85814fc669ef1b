"""mxt trust: which of the user's workspaces may run their own rules/*.py, pinned by digest."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mxt.errors import UsageError
from mxt.loading.label import quoted


def trust_file(environ: Mapping[str, str] | None = None) -> Path:
    """Where the pins are: $XDG_CONFIG_HOME/mxt/trust.json, else ~/.config/mxt/trust.json."""
    env = os.environ if environ is None else environ
    config = env.get("XDG_CONFIG_HOME") or ""
    # the XDG specification has relative paths ignored
    base = (
        Path(config)
        if config.startswith("/")
        else Path(env.get("HOME") or os.path.expanduser("~")) / ".config"
    )
    return base / "mxt" / "trust.json"


def rule_digests(rules: Path) -> dict[str, str]:
    """Path below the workspace -> BLAKE3 of every Python file in its rules/ folder, nested ones too."""
    return {path: digest_of(data) for path, data in rule_contents(rules).items()}


def rule_contents(rules: Path) -> dict[str, bytes]:
    """Path below the workspace -> bytes of every Python file in rules/; links out of it are refused."""
    found: dict[str, bytes] = {}
    top = os.path.realpath(rules)
    for folder, folders, files in os.walk(top):
        folders[:] = sorted(f for f in folders if f != "__pycache__" and not f.startswith("."))
        for name in sorted(files):
            if not name.endswith(".py"):
                continue
            full = os.path.join(folder, name)
            shown = "rules/" + os.path.relpath(full, top)
            if not os.path.realpath(full).startswith(top + "/"):
                raise UsageError(f"{quoted(shown)} is a link out of rules/", hint="copy the file there")
            try:
                found[shown] = Path(full).read_bytes()
            except OSError as problem:
                raise UsageError(f"cannot read {quoted(shown)}: {problem.strerror}") from None
    return found


def digest_of(data: bytes) -> str:
    """BLAKE3 in lower hexadecimal."""
    from blake3 import blake3

    return str(blake3(data).hexdigest())


def trust(root: Path, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Pin the present content of root's rules/*.py; returns the pinned digests by path."""
    digests = rule_digests(root / "rules")
    file = trust_file(environ)
    pins = _read(file)
    pins[os.path.realpath(root)] = digests
    _write(file, pins)
    return digests


def distrust(root: Path, environ: Mapping[str, str] | None = None) -> bool:
    """Forget root; returns whether it was trusted."""
    file = trust_file(environ)
    pins = _read(file)
    if pins.pop(os.path.realpath(root), None) is None:
        return False
    _write(file, pins)
    return True


def check_trust(root: Path, digests: Mapping[str, str], environ: Mapping[str, str] | None = None) -> None:
    """Raises UsageError unless exactly these rule files were trusted."""
    if not digests:
        return
    pinned = _read(trust_file(environ)).get(os.path.realpath(root))
    if pinned is None:
        names = _listed(sorted(digests))
        raise UsageError(
            f"this workspace has rules of its own that are not trusted: {names}",
            hint="rules are code that runs as you: read them, then run 'mxt trust'",
        )
    problems = [
        (f"{path} changed" if path in pinned else f"{path} is new")
        for path in sorted(digests)
        if pinned.get(path) != digests[path]
    ]
    problems += [f"{path} is gone" for path in sorted(pinned) if path not in digests]
    if problems:
        raise UsageError(
            f"rules differ from what was trusted: {_listed(problems)}",
            hint="read the change, then run 'mxt trust'",
        )


def _listed(items: list[str], most: int = 8) -> str:
    shown = ", ".join(items[:most])
    return shown if len(items) <= most else f"{shown} and {len(items) - most} more"


def _read(file: Path) -> dict[str, dict[str, str]]:
    try:
        data: Any = json.loads(file.read_bytes())
    except FileNotFoundError:
        return {}
    except OSError as problem:
        raise UsageError(f"cannot read {quoted(str(file))}: {problem.strerror}") from None
    except ValueError:
        data = None
    pins = data.get("workspaces") if isinstance(data, dict) and data.get("version") == 1 else None
    if not isinstance(pins, dict) or not all(
        isinstance(files, dict) and all(isinstance(digest, str) for digest in files.values())
        for files in pins.values()
    ):
        raise UsageError(
            f"{quoted(str(file))} is damaged or of another version",
            hint="delete it, then run 'mxt trust' again",
        )
    return pins


def _write(file: Path, pins: dict[str, dict[str, str]]) -> None:
    import tempfile

    text = json.dumps({"version": 1, "workspaces": pins}, indent=1, sort_keys=True) + "\n"
    aside: str | None = None
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, aside = tempfile.mkstemp(prefix=".trust-", dir=file.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        os.replace(aside, file)
    except OSError as problem:
        if aside is not None and os.path.exists(aside):
            os.unlink(aside)
        raise UsageError(f"cannot write {quoted(str(file))}: {problem.strerror}") from None
