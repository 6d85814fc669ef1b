"""Large and many files: hashing sources, looking at them again, taking an output into the store."""

from __future__ import annotations

import json
import os
import random
import shutil
from datetime import datetime
from pathlib import Path

from benchmarks._measure import MXT, BenchmarkError, Case, Result, Row, in_turn, plain_row, rows, run, say
from benchmarks._peers import b3sum
from benchmarks._settings import Settings
from benchmarks._worlds import BUILD, Worlds

BLOCK = 1 << 20  # small: this program's own memory is the floor of what it measures


def measure(settings: Settings, worlds: Worlds) -> Result:
    """Every figure of mxt's is that of a whole command, so its start and its Starlark are within."""
    size = (32 << 20) if settings.quick else (4 << 30)
    count = 200 if settings.quick else 20_000
    notes: list[str] = []
    try:
        reference = b3sum()
    except BenchmarkError as error:
        reference = ""
        notes.append(str(error))
    found = _source_file(settings, worlds, size, reference)
    found += _source_folder(settings, worlds, count, reference)
    found += _output(settings, worlds, size, reference)
    if settings.quick:
        for row in found:
            row.goal_ms, row.note = None, ""
    return Result("hashing", settings.quick, found, {"bytes": size, "files": count}, notes=notes)


def _source_file(settings: Settings, worlds: Worlds, size: int, reference: str) -> list[Row]:
    root = worlds.fresh("large")
    say(f"  a source of {_size(size)}")
    block = random.Random(1).randbytes(min(BLOCK, size))
    with (root / "large.bin").open("wb") as file:
        for _ in range(size // len(block)):
            file.write(block)
    (root / "MXTBUILD").write_text(
        'genrule(name = "x", srcs = ["large.bin"], outs = ["o"], cmd = "wc -c < $< > $@")\n'
    )
    first = Case(
        "mxt",
        [*MXT, "build", "-n", "//..."],
        root,
        worlds.env,
        lambda _: shutil.rmtree(root / "cache", ignore_errors=True),
    )
    cases = [first] + ([Case("b3sum", [reference, "large.bin"], root, worlds.env)] if reference else [])
    found = rows(f"hash a source of {_size(size)}, warm", 1, in_turn(cases, settings.runs(5)), goal_ms=1_000)
    again = Case("mxt", first.command, root, worlds.env)
    found += rows(f"look again at {_size(size)}", 1, in_turn([again], settings.runs(7)), goal_ms=200)
    shutil.rmtree(root)
    return found


def _source_folder(settings: Settings, worlds: Worlds, count: int, reference: str) -> list[Row]:
    root = worlds.fresh("many")
    say(f"  {count:,} sources of 4 KiB")
    write_many(root / "data", count)
    (root / "MXTBUILD").write_text(
        'genrule(name = "x", srcs = ["data"], outs = ["o"], cmd = "ls $< | wc -l > $@")\n'
    )
    plan = [*MXT, "build", "-n", "//..."]
    first = Case("mxt", plan, root, worlds.env, lambda _: shutil.rmtree(root / "cache", ignore_errors=True))
    cases = [first]
    if reference:
        shell = ["sh", "-c", f"find data -type f -print0 | xargs -0 {reference}"]
        cases.append(Case("b3sum", shell, root, worlds.env))
    found = rows(f"hash {count:,} files of 4 KiB", count, in_turn(cases, settings.runs(5)), goal_ms=600)
    again = Case("mxt", plan, root, worlds.env)
    found += rows(f"look again at {count:,} files", count, in_turn([again], settings.runs(7)), goal_ms=200)
    null = Case("mxt", BUILD, root, worlds.env)
    run(BUILD, root, worlds.env)
    found += rows(
        f"null build over {count:,} files", count, in_turn([null], settings.runs(7), warm=2), goal_ms=200
    )
    shutil.rmtree(root)
    return found


def write_many(folder: Path, count: int, size: int = 4096) -> None:
    """`count` different files, 1,000 a folder."""
    dice = random.Random(2)
    for i in range(count):
        if i % 1_000 == 0:
            part = folder / f"{i // 1_000:04}"
            part.mkdir(parents=True)
        (part / f"{i:07}").write_bytes(dice.randbytes(size))


def _output(settings: Settings, worlds: Worlds, size: int, reference: str) -> list[Row]:
    """From the end of the action's process to its result being kept, by the event stream."""
    root = worlds.fresh("output")
    say(f"  an output of {_size(size)}")
    (root / "block").write_bytes(random.Random(3).randbytes(min(BLOCK, size)))
    blocks = size // min(BLOCK, size)
    cmd = f"for i in $$(seq {blocks}); do cat $<; done > $@"
    (root / "MXTBUILD").write_text(f'genrule(name = "x", srcs = ["block"], outs = ["o"], cmd = "{cmd}")\n')
    events = worlds.folder / "events.jsonl"
    taken: list[float] = []
    hashed: list[float] = []
    for number in range(settings.runs(4) + 1):
        shutil.rmtree(root / "cache", ignore_errors=True)
        os.sync()  # writing back the last round's file is no part of this one
        run([*MXT, "build", "//:x", "--events", str(events)], root, worlds.env)
        if number:
            taken.append(_after_process(events))
            if reference:
                hashed.append(run([reference, "mxt-out/x/o"], root, worlds.env).wall_s)
    shutil.rmtree(root)
    name = f"take an output of {_size(size)} into the store"
    found = [plain_row(name, "mxt", 1, taken)]
    if hashed:
        found.append(plain_row(name, "b3sum", 1, hashed))
        found[0].goal_ms = round(1.5 * found[1].wall_ms, 1)
        found[0].note = "the goal is 1.5 x the hash time"
        pairs = sorted(a / b for a, b in zip(taken, hashed, strict=True))
        found[1].ratio = round(pairs[len(pairs) // 2], 2)
    return found


def _size(size: int) -> str:
    return f"{size >> 30} GiB" if size >= 1 << 30 else f"{size >> 20} MiB"


def _after_process(events: Path) -> float:
    """Seconds between the end of the one action's process and its action_finished event."""
    at: dict[str, dict[str, object]] = {}
    for line in events.read_text().splitlines():
        event = json.loads(line)
        at[event["event"]] = event
    started, finished = (
        datetime.fromisoformat(str(at[e]["time"])) for e in ("action_started", "action_finished")
    )
    return (finished - started).total_seconds() - float(str(at["action_finished"]["wall_s"]))
