"""A real run: which share of its wall time is not spent inside the stages' own functions.

One action at a time, so that seconds add up. For each action the event stream gives the seconds of its
process; a stage of the same toolchain that does nothing tells how many of those are mxt's: the sandbox,
the interpreter, the task. What is left is the stage's function, imports of its libraries included.

    overhead = wall of the command - sum over actions (seconds of its process - seconds of the empty stage)

The first build in a store also reads the environment once, 2 GB: that share is told apart.
"""

from __future__ import annotations

import json
import shutil
import statistics
from pathlib import Path

from benchmarks._measure import MXT, PYTHON, REPOSITORY, BenchmarkError, Result, Row, Sample, run, say
from benchmarks._settings import Settings
from benchmarks._worlds import Worlds

TARGET = "//recipes:tiny_sft_lora"
GOAL_PERCENT = 5

EMPTY = '''"""nothing: a stage whose function does nothing."""

from mxt.rule import Attributes, Run, Target


class Attrs(Attributes):
    number: int


def actions(target: Target) -> None:
    target.action(run=nothing, outputs={"o": "o"}, params={"number": target.attrs.number})


def nothing(run: Run) -> None:
    run.outputs["o"].touch()
'''


def measure(settings: Settings, worlds: Worlds) -> Result:
    """The tiny recipe with -j1 from an empty store; --quick: a workspace of empty stages only."""
    empty = _empty_stage(settings, worlds)
    facts: dict[str, object] = {"empty_stage_process_ms": round(empty * 1e3, 2)}
    if settings.quick:
        return Result(
            "overhead", True, [Row("an empty stage's process", "mxt", 1, round(empty * 1e3, 2))], facts
        )
    if not (PYTHON.parent.parent / "installed.txt").exists():
        raise BenchmarkError("the stages' libraries are not installed: run ./mxtw --version first")
    root = worlds.fresh("tiny")
    _copy_recipes(root)
    events = worlds.folder / "events.jsonl"
    shares: list[float] = []
    found: list[Row] = []
    for number in range(3):
        say(f"  {TARGET} from an empty store, one action at a time ({number + 1} of 3)")
        _forget(root)
        sample = run([*MXT, "build", TARGET, "-j1", "--events", str(events)], root, worlds.env)
        stages = {name: took - empty for name, took in _processes(events).items()}
        rest = sample.wall_s - sum(stages.values())
        shares.append(100 * rest / sample.wall_s)
        found = _rows(sample, stages, rest)
    median = statistics.median(shares[1:])
    facts |= {
        "overhead_percent": round(median, 2),
        "overhead_percent_samples": [round(share, 2) for share in shares[1:]],
        "overhead_percent_in_a_new_store": round(shares[0], 2),
        "goal_percent": GOAL_PERCENT,
        "actions": len(stages),
    }
    note = (
        f"{median:.1f} % of the wall time is not the stages' own (goal: {GOAL_PERCENT} %); {shares[0]:.1f} %"
        " in a store that has not seen the environment yet: it is read once for each change, 2 GB"
    )
    return Result("overhead", False, found, facts, notes=[note])


def _forget(root: Path) -> None:
    """Every result and memory but that of the environment, which is read once for each change of it."""
    cache, kept = root / "cache", root / "checked"
    if (cache / "toolchains").is_dir():
        (cache / "toolchains").rename(kept)
    shutil.rmtree(cache, ignore_errors=True)
    shutil.rmtree(root / "mxt-out", ignore_errors=True)
    if kept.is_dir():
        cache.mkdir()
        kept.rename(cache / "toolchains")


def _rows(sample: Sample, stages: dict[str, float], rest: float) -> list[Row]:
    made = [Row("the tiny recipe, -j1", "mxt", len(stages), round(sample.wall_s * 1e3, 1))]
    made.append(Row("the tiny recipe: outside of its stages (5 % of it)", "mxt", 1, round(rest * 1e3, 1)))
    made[1].goal_ms = round(sample.wall_s * 1e3 * GOAL_PERCENT / 100, 1)
    made += [Row(f"of which {name}", "stage", 1, round(took * 1e3, 1)) for name, took in stages.items()]
    return made


def _copy_recipes(root: Path) -> None:
    shutil.copy(REPOSITORY / "MXTBUILD", root)
    for folder in ("toolchains", "recipes"):
        shutil.copytree(REPOSITORY / folder, root / folder)


def _empty_stage(settings: Settings, worlds: Worlds) -> float:
    """Median seconds of the process of a stage that does nothing, in the recipes' own toolchain."""
    root = worlds.fresh("empty")
    _copy_recipes(root)
    shutil.rmtree(root / "recipes")
    (root / "rules").mkdir()
    (root / "rules/nothing.py").write_text(EMPTY)
    (root / "p").mkdir()
    count = 4 if settings.quick else 12
    call = 'nothing(name = "n%d" % i, number = i, toolchain = "//:cpu_py311", platform = "//:cpu")'
    (root / "p/MXTBUILD").write_text(f"[{call} for i in range({count})]\n")
    events = worlds.folder / "events.jsonl"
    run([*MXT, "trust"], root, worlds.env)
    run([*MXT, "build", "//p:all", "-j1", "--events", str(events)], root, worlds.env)
    return statistics.median(_processes(events).values())


def _processes(events: Path) -> dict[str, float]:
    """Seconds of each action's process, by label."""
    found = {}
    for line in events.read_text().splitlines():
        event = json.loads(line)
        if event["event"] == "action_finished":
            assert event["status"] == "executed", event
            found[event["label"].rpartition(":")[2] + (f"[{event['action']}]" if event["action"] else "")] = (
                event["wall_s"]
            )
    return found
