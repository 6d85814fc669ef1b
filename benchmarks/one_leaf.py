"""One of many leaves changed: how long until everything is up to date again."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks._measure import Case, Result, Row, Sample, plain_row, rows, run
from benchmarks._settings import Settings
from benchmarks._worlds import BUILD, World, Worlds

GOAL = 200


def measure(settings: Settings, worlds: Worlds) -> Result:
    """A build after one source of N got other content; each time another one."""
    n = settings.size(10_000, quick=50)
    world = worlds.copies(n)
    actions: list[float] = []
    walls: list[float] = []

    def edit(root: Path, number: int) -> None:
        (root / f"src/{(number * 7919 + 13) % n}.txt").write_text(f"edit {number} of {root.name}\n")

    cases = [Case("mxt", BUILD, world.root, world.env)]
    if "ninja" in worlds.peers:
        cases.append(world.peer("ninja"))
    samples: dict[str, list[Sample]] = {case.tool: [] for case in cases}
    for number in range(settings.runs(9) + 1):
        for case in cases:
            edit(case.cwd, number)
            sample = run(case.command, case.cwd, case.env)
            took = executed(world) if case.tool == "mxt" else 0.0
            if number:  # the first warms up
                samples[case.tool].append(sample)
                if case.tool == "mxt":
                    actions.append(took)
                    walls.append(sample.wall_s - took)
    found: list[Row] = rows("one leaf changed", n, samples)
    found.append(
        plain_row(
            "one leaf changed, without its action", "mxt", n, walls, goal_ms=GOAL if n == 10_000 else None
        )
    )
    return Result("one_leaf", settings.quick, found, {"action_ms": [round(a * 1e3, 2) for a in actions]})


def executed(world: World) -> float:
    """Seconds of the actions that the newest build ran, by its record; exactly one must have run."""
    folder = world.root / "cache/state/builds"
    newest = max(folder.iterdir(), key=lambda p: p.name)
    ran = [step for step in json.loads(newest.read_bytes())["steps"] if step[3] == "executed"]
    assert len(ran) == 1, f"{len(ran)} actions ran after one edit"
    return float(ran[0][4])
