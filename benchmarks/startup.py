"""How long the commands take that do nothing: what is felt at every key press."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks._measure import MXT, PYTHON, REPOSITORY, BenchmarkError, Case, Result, in_turn, rows, run
from benchmarks._settings import Settings
from benchmarks._worlds import Worlds

GOAL = 50


def measure(settings: Settings, worlds: Worlds) -> Result:
    """`mxt --help` and its like, beside a bare interpreter and `ninja --version`, in turn."""
    world = worlds.copies(settings.size(10_000, quick=10))
    mxtw = str(REPOSITORY / "mxtw")
    commands = {
        "mxt --help": [*MXT, "--help"],
        "mxt --version": [*MXT, "--version"],
        "mxt build --help": [*MXT, "build", "--help"],
        "mxtw --help": [mxtw, "--help"],
    }
    # what a shell asks at a press of Tab; it must answer, or its speed says nothing
    complete = [*MXT, "complete", "build", "//:t1"]
    if "//:t1" not in run(complete, world.root, world.env).out:
        raise BenchmarkError("completion offers no label of a workspace that was built")
    commands[f"completion of a label, {world.n:,} targets"] = complete
    commands["completion of an option"] = [*MXT, "complete", "build", "--no"]
    cases = [Case(name, command, world.root, world.env) for name, command in commands.items()]
    cases.append(Case("python -c pass", [str(PYTHON), "-I", "-S", "-c", "pass"], Path("/"), world.env))
    if "ninja" in worlds.peers:
        ninja = worlds.peers.command("ninja")
        cases.append(Case("ninja --version", [ninja, "--version"], world.root, world.env))
    found = rows("start", 0, in_turn(cases, settings.runs(21), warm=2))
    for row in found:
        row.case = row.tool
        row.tool, row.n = row.tool.partition(" ")[0], 0
        if row.tool in ("mxt", "mxtw", "completion"):
            row.tool, row.goal_ms = "mxt", GOAL
    return Result(
        "startup", settings.quick, found, {"interpreter": f"{sys.version_info[0]}.{sys.version_info[1]}"}
    )
