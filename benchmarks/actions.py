"""Many distinct actions that do next to nothing: what each tool adds to an action."""

from __future__ import annotations

import shutil
from pathlib import Path

from benchmarks._measure import MXT, Case, Result, Row, in_turn, rows, say
from benchmarks._peers import quiet_dvc
from benchmarks._settings import Settings
from benchmarks._worlds import WRITERS, Worlds, peer_command, write_mxt, write_sources

GOALS = {"plain": 3_500, "sandboxed": 6_500}


def measure(settings: Settings, worlds: Worlds) -> Result:
    """N trivial actions from an empty store, plain and sandboxed. Of the others only DVC keeps results."""
    n = settings.size(1_000, quick=10)
    root = worlds.fresh("actions")
    write_sources(root, n)
    write_mxt(root, n)

    aside = worlds.fresh("actions-aside")

    def case(tool: str, *more: str) -> Case:
        command = [*MXT, "build", "//...", *more]
        return Case(tool, command, root, worlds.env, lambda _: put_aside(aside, root, "cache", "mxt-out"))

    cases = [case("mxt", "--no-sandbox")]
    notes = []
    if shutil.which("bwrap"):
        cases.append(case("mxt, sandboxed"))
    else:
        notes.append("without bubblewrap no sandbox could be measured")
    if "ninja" in worlds.peers:
        cases.append(_peer(worlds, "ninja", n, ("ninja-out", ".ninja_log", ".ninja_deps")))
    say(f"  {n:,} actions: mxt and ninja")
    found = rows("trivial actions", n, in_turn(cases, settings.runs(5)))
    goals = [GOALS["plain"], GOALS["sandboxed"]]
    for row, goal in zip([r for r in found if r.tool.startswith("mxt")], goals, strict=False):
        row.goal_ms = goal if n == 1_000 else None
    plain = found[0].wall_ms
    # slow ones once or twice, alone: a pair would say no more
    if "snakemake" in worlds.peers:
        say(f"  {n:,} actions: Snakemake")
        slow = _peer(worlds, "snakemake", n, ("smk-out", ".snakemake"))
        found += rows("trivial actions", n, in_turn([slow], settings.runs(2), warm=0))
    if "dvc" in worlds.peers:
        few = min(100, n)
        say(f"  {few:,} actions: DVC")
        made = rows("trivial actions", few, in_turn([_dvc(worlds, few)], 1, warm=0))
        found += made
        if few < n:
            scaled = Row(
                "trivial actions",
                "dvc",
                n,
                round(made[0].wall_ms * n / few, 2),
                note=f"{few} measured, scaled",
            )
            found.append(scaled)
    shutil.rmtree(aside)
    for row in found:
        row.ratio = round(plain / row.wall_ms, 4) if row.n == n and not row.tool.startswith("mxt") else None
    return Result("actions", settings.quick, found, notes=notes)


def put_aside(aside: Path, root: Path, *names: str) -> None:
    """Take away what the last run made. Deleting it would make the next run slower than a first one is: ext4
    looks for five seconds at what was deleted whenever it makes a file."""
    for name in names:
        if (root / name).exists():
            (root / name).rename(aside / f"{len(list(aside.iterdir()))}")


def _peer(worlds: Worlds, tool: str, n: int, made: tuple[str, ...]) -> Case:
    root = worlds.fresh(f"actions-{tool}")
    write_sources(root, n)
    WRITERS[tool](root, n)

    aside = worlds.folder / "actions-aside"
    return Case(
        tool, peer_command(worlds.peers, tool), root, worlds.env, lambda _: put_aside(aside, root, *made)
    )


def _dvc(worlds: Worlds, n: int) -> Case:
    case = _peer(worlds, "dvc", n, ())
    quiet_dvc(case.command[0], case.cwd, worlds.env)
    return case
