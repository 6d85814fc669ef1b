"""Cold analysis: from MXTBUILD files to the key of every action, with no snapshot to go by."""

from __future__ import annotations

import json
import shutil

from benchmarks._measure import (
    MXT,
    PYTHON,
    REPOSITORY,
    BenchmarkError,
    Result,
    Row,
    plain_row,
    rows,
    run,
    say,
)
from benchmarks._settings import Settings
from benchmarks._worlds import BUILD, Worlds

GOAL = 800

# Runs in mxt's own interpreter; its figures are a look inside and nothing that a user waits for as such.
PHASES = """
import json, sys, time
sys.argv = ["mxt"]
sys.path.insert(0, REPOSITORY)
import mxt
began = time.perf_counter()
from argparse import Namespace
from mxt.cli.main import spare_the_collector
spare_the_collector()
from mxt.cli.session import Session
from mxt.execution.forecast import forecast
from mxt.graph import analysis
times = {}
def lap(name):
    global began
    now = time.perf_counter()
    times[name] = now - began
    began = now
lap("imports")
session = Session(Namespace(workspace=None, store=None))
labels = session.resolve(["//..."])
lap("loading (Starlark)")
graph = session.analyse(labels)
lap("analysis (actions)")
runner = session.runner(graph)
lap("sources (stat, index)")
forecast(graph, runner)
lap("keys and look-ups")
print(json.dumps(times))
"""


def measure(settings: Settings, worlds: Worlds) -> Result:
    """`build -n //...` of a built workspace without its snapshots, and in an empty store."""
    n = settings.size(10_000, quick=50)
    world = worlds.copies(n)
    plan = [*MXT, "build", "-n", "//..."]
    say(f"  cold analysis of {n:,}")
    cold, fresh = [], []
    elsewhere = worlds.folder / "empty-store"
    for number in range(settings.runs(7) + 1):
        shutil.rmtree(world.root / "cache/state/snapshots", ignore_errors=True)
        first = run(plan, world.root, world.env)
        shutil.rmtree(elsewhere, ignore_errors=True)
        second = run([*plan, "--store", str(elsewhere)], world.root, world.env)
        if number:
            cold.append(first)
            fresh.append(second)
    found: list[Row] = rows("build -n without a snapshot", n, {"mxt": cold})
    found += rows("build -n in an empty store: every source hashed", n, {"mxt": fresh})
    notes = []
    laps: dict[str, list[float]] = {}
    try:
        for _ in range(settings.runs(5)):
            code = PHASES.replace("REPOSITORY", repr(str(REPOSITORY)), 1)
            sample = run([str(PYTHON), "-I", "-c", code], world.root, world.env)
            for name, took in json.loads(sample.out.splitlines()[-1]).items():
                laps.setdefault(name, []).append(took)
    except (BenchmarkError, ValueError) as error:
        notes.append(f"the phases could not be told apart: {str(error).splitlines()[-1]}")
    if laps:
        # what is meant by analysis: from the files to the action graph, before any source is looked at
        whole = [sum(lap) for lap in zip(*list(laps.values())[:3], strict=True)]
        goal = {"goal_ms": GOAL} if n == 10_000 else {}
        found.append(plain_row("cold analysis: imports, loading, analysis", "mxt", n, whole, **goal))
    found += [plain_row(f"of which {name}", "mxt", n, took) for name, took in laps.items()]
    # the world is as it was: the next build finds everything, and remembers it
    run(BUILD, world.root, world.env)
    return Result("analysis", settings.quick, found, notes=notes)
