"""How costs grow: with the number of targets, and with the number of files in one source folder.

b3sum reads the same files in the same run: a million of them are more than many a machine keeps in its page
cache, and what they cost then is the disk's.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence

from benchmarks import _chart
from benchmarks._measure import MXT, REPOSITORY, Case, Result, Row, exponent, in_turn, rows, run, say
from benchmarks._settings import Settings
from benchmarks._worlds import BUILD, Worlds
from benchmarks.hashing import write_many

TARGETS = (10, 100, 1_000, 10_000, 100_000)
FILES = (1_000, 10_000, 100_000, 1_000_000)
PICTURE = REPOSITORY / "docs/scale.svg"


def measure(settings: Settings, worlds: Worlds) -> Result:
    """Null build and cold analysis by targets; first hash and null build by files (of 64 bytes)."""
    found: list[Row] = []
    for n in settings.sizes(TARGETS, quick=(10, 50)):
        found += _targets(settings, worlds, n)
    for n in settings.sizes(FILES, quick=(100, 500)):
        found += _files(settings, worlds, n)
    facts: dict[str, object] = {}
    series: dict[str, list[tuple[float, float]]] = {}
    for row in found:
        case = row.case if row.tool == "mxt" else f"{row.case}: {row.tool}"
        series.setdefault(case, []).append((row.n, row.wall_ms))
    for name, points in series.items():
        # starting the command is no cost of size: it is taken off before the slope is fitted
        floor = min(t for _, t in points)
        grown = [(n, t - floor) for n, t in points if t > 2 * floor]
        facts[f"exponent: {name}"] = round(exponent(grown), 2) if len(grown) > 1 else None
    if not settings.quick and settings.largest >= FILES[-1]:
        PICTURE.write_text(picture(series), encoding="utf-8")
    return Result("scale", settings.quick, found, facts)


def picture(series: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """The curves as an SVG."""
    return _chart.curves("Cost by size", "targets, or files in a source folder", "ms", series)


def _targets(settings: Settings, worlds: Worlds, n: int) -> list[Row]:
    world = worlds.copies(n)
    say(f"  {n:,} targets")
    null = Case("mxt", BUILD, world.root, world.env)
    found = rows("null build, by targets", n, in_turn([null], settings.runs(5), warm=2))
    cold = Case(
        "mxt",
        [*MXT, "build", "-n", "//..."],
        world.root,
        world.env,
        lambda _: shutil.rmtree(world.root / "cache/state/snapshots", ignore_errors=True),
    )
    found += rows("cold analysis, by targets", n, in_turn([cold], settings.runs(3)))
    run(null.command, world.root, world.env)
    return found


def _files(settings: Settings, worlds: Worlds, n: int) -> list[Row]:
    root = worlds.fresh("files")
    say(f"  {n:,} files")
    write_many(root / "data", n, size=64)
    (root / "MXTBUILD").write_text(
        'genrule(name = "x", srcs = ["data"], outs = ["o"], cmd = "find $</ -type f | wc -l > $@")\n'
    )
    plan = [*MXT, "build", "-n", "//..."]
    first = Case("mxt", plan, root, worlds.env, lambda _: shutil.rmtree(root / "cache", ignore_errors=True))
    runs = 1 if n >= 1_000_000 else settings.runs(3)
    peer = Case(
        "b3sum", ["sh", "-c", "find data -type f -print0 | xargs -0 b3sum >/dev/null"], root, worlds.env
    )
    found = rows("hash a source folder, by files", n, in_turn([first, peer], runs, warm=0))
    # sandboxed where there is one: without it the action would run on a copy of every file
    build = BUILD
    null = Case("mxt", build, root, worlds.env)
    found += rows("null build, by files", n, in_turn([null], settings.runs(5), warm=2))
    shutil.rmtree(root)
    return found
