"""Null builds: nothing changed, and how long each tool takes to see it."""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks import _chart
from benchmarks._measure import REPOSITORY, Case, Result, Row, in_turn, rows, say
from benchmarks._settings import Settings
from benchmarks._worlds import BUILD, Worlds

PICTURE = REPOSITORY / "docs/null.svg"
SIZES = (10, 1_000, 10_000, 100_000)
GOALS = {10: 40, 1_000: 60, 10_000: 150, 100_000: 700}
# beyond these a single null build takes most of a minute, and the first build many
LIMITS = {"ninja": 100_000, "snakemake": 1_000, "dvc": 1_000}


def measure(settings: Settings, worlds: Worlds) -> Result:
    """Wall, CPU and peak memory of null builds of genrules, each with its own source and output."""
    found: list[Row] = []
    limits = {**LIMITS, **settings.limits}
    for n in settings.sizes(SIZES, quick=(10, 100)):
        world = worlds.copies(n)
        mxt = Case("mxt", BUILD, world.root, world.env)
        fast = [mxt, *(world.peer("ninja") for t in ["ninja"] if t in worlds.peers and n <= limits[t])]
        say(f"  null builds of {n:,}")
        # two rounds warm up: the first may hash again what was written a moment ago, and remembers it
        samples = in_turn(fast, settings.runs(11), warm=2)
        for tool in ("snakemake", "dvc"):
            if tool in worlds.peers and n <= limits[tool]:
                samples.update(in_turn([world.peer(tool)], settings.runs(3)))
        found += rows("null build", n, samples, goal_ms=GOALS.get(n))
    notes = [
        f"{tool} was measured up to {limit:,} actions"
        for tool, limit in limits.items()
        if tool in worlds.peers
    ]
    if not settings.quick and settings.largest >= SIZES[-1]:
        PICTURE.write_text(picture((row.tool, row.n, row.wall_ms) for row in found), encoding="utf-8")
    return Result("null", settings.quick, found, notes=notes)


def picture(points: Iterable[tuple[str, int, float]]) -> str:
    """The curves as an SVG. points: (tool, targets, ms)."""
    series: dict[str, list[tuple[float, float]]] = {}
    for tool, n, wall in points:
        series.setdefault(tool, []).append((n, wall))
    return _chart.curves("A build with nothing to do", "targets", "ms", series)
