"""The tools that mxt is measured beside, in an environment of their own that is made at first use."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks._measure import PYTHON, REPOSITORY, BenchmarkError, say

PINS = REPOSITORY / "benchmarks/peers.txt"
FOLDER = REPOSITORY / "benchmarks/.peers"
NAMES = ("ninja", "snakemake", "dvc")


class Peers:
    """Where each peer's command is; absent ones with the reason why. wanted: which to look for."""

    def __init__(self, wanted: tuple[str, ...] = NAMES, *, install: bool = True) -> None:
        self.why_not: dict[str, str] = {}
        self._commands: dict[str, str] = {}
        if not wanted:
            return
        trouble = _install() if install else ""
        for name in wanted:
            # ninja alone is also a development tool of this repository, and a package of every system
            places = [
                FOLDER / "bin" / name,
                *([PYTHON.parent / "ninja", shutil.which("ninja")] if name == "ninja" else []),
            ]
            found = next((str(p) for p in places if p and os.access(p, os.X_OK)), None)
            if found:
                self._commands[name] = found
            else:
                self.why_not[name] = trouble or "not installed: run without --no-install"
                say(f"note: without {name}: {self.why_not[name]}")

    def __contains__(self, name: str) -> bool:
        return name in self._commands

    def command(self, name: str) -> str:
        """Raises BenchmarkError, with the reason, for a peer that is not there."""
        if name not in self._commands:
            raise BenchmarkError(f"{name} is missing: {self.why_not.get(name, 'not asked for')}")
        return self._commands[name]

    def versions(self) -> dict[str, str]:
        found = {}
        for name, command in self._commands.items():
            done = subprocess.run([command, "--version"], capture_output=True, text=True, check=False)
            found[name] = (done.stdout.split() or ["?"])[0]
        return found


def _install() -> str:
    """Make benchmarks/.peers hold exactly the pins; "" or why it could not."""
    marker = FOLDER / "installed.txt"
    if marker.exists() and marker.read_bytes() == PINS.read_bytes():
        return ""
    say(
        f"installing DVC, Snakemake and ninja into {FOLDER.relative_to(REPOSITORY)}"
        " (about a minute, 275 MB) ..."
    )
    began = time.monotonic()
    python = shutil.which("python3.11") or sys.executable
    for command in (
        [python, "-m", "venv", "--clear", str(FOLDER)],
        [
            str(FOLDER / "bin/pip"),
            "install",
            "-q",
            "--no-deps",
            "--disable-pip-version-check",
            "-r",
            str(PINS),
        ],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            lines = done.stderr.splitlines() or ["no word why"]
            why = [line for line in lines if line.lower().startswith("error")] or lines
            return f"'{Path(command[0]).name} {command[1]}' failed: {why[-1][:200]}"
    marker.write_bytes(PINS.read_bytes())
    say(f"installed in {time.monotonic() - began:.0f} s")
    return ""


def b3sum() -> str:
    """Raises BenchmarkError where the reference BLAKE3 is not installed."""
    found = shutil.which("b3sum")
    if found is None:
        raise BenchmarkError("b3sum is missing: install the package 'b3sum'")
    return found


def quiet_dvc(dvc: str, root: Path, env: Mapping[str, str]) -> None:
    """A DVC repository that sends nothing anywhere and asks for no update."""
    for args in (
        ["init", "--no-scm", "-q"],
        ["config", "core.analytics", "false"],
        ["config", "core.check_update", "false"],
    ):
        subprocess.run([dvc, *args], cwd=root, env=dict(env), check=True, capture_output=True)
