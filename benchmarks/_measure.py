"""Measuring commands: wall, CPU and memory of each, in turn, so that a noisy moment hits all alike."""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
PYTHON = REPOSITORY / ".venv/bin/python"
# what mxtw executes once .venv is complete
MXT = [str(PYTHON), "-I", "-S", str(REPOSITORY / "mxt/__main__.py")]


class BenchmarkError(Exception):
    """Something cannot be measured here; the message says what and how to get it."""


@dataclass(frozen=True)
class Sample:
    """One run of a command. Seconds, and MiB of its largest process: at least this program's own 16."""

    wall_s: float
    cpu_s: float
    peak_mib: float
    out: str


@dataclass(frozen=True)
class Case:
    """Something to measure. before: runs untimed ahead of each sample, and is told its number."""

    tool: str
    command: Sequence[str]
    cwd: Path
    env: Mapping[str, str]
    before: Callable[[int], object] = lambda _: None


@dataclass
class Row:
    """One line of a table. Times are medians in milliseconds; ratio: mxt's time over this one's."""

    case: str
    tool: str
    n: int
    wall_ms: float
    samples_ms: list[float] = field(default_factory=list)
    cpu_ms: float | None = None
    peak_mib: float | None = None
    goal_ms: float | None = None
    ratio: float | None = None
    note: str = ""


def environment(home: Path) -> dict[str, str]:
    """Ours, with a home of its own and without what would change how a tool behaves."""
    kept = {
        k: v for k, v in os.environ.items() if not k.startswith(("MXT_", "XDG_", "DVC_", "PYTHON", "NINJA"))
    }
    return {
        **kept,
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "NO_COLOR": "1",
        "DVC_NO_ANALYTICS": "1",
    }


def run(command: Sequence[str], cwd: Path, env: Mapping[str, str], *, check: bool = True) -> Sample:
    """Run a command to its end. Raises BenchmarkError with the end of its output where it fails."""
    with tempfile.TemporaryFile() as file:  # not below cwd: a new file there would be a change
        began = time.perf_counter()
        process = subprocess.Popen(
            list(command),
            cwd=cwd,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
        try:
            _, status, used = os.wait4(process.pid, 0)
        except BaseException:
            process.kill()
            process.wait()
            raise
        wall = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        file.seek(0)
        text = file.read().decode("utf-8", "replace")
    if check and process.returncode != 0:
        end = "\n".join(text.splitlines()[-15:])
        raise BenchmarkError(f"'{' '.join(command)}' ended with status {process.returncode}:\n{end}")
    return Sample(wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, text)


def in_turn(cases: Sequence[Case], runs: int, warm: int = 1) -> dict[str, list[Sample]]:
    """Samples by tool: a, b, a, b, ...; the first `warm` of each are thrown away (page cache, racy files)."""
    found: dict[str, list[Sample]] = {case.tool: [] for case in cases}
    for number in range(warm + runs):
        for case in cases:
            case.before(number)
            sample = run(case.command, case.cwd, case.env)
            if number >= warm:
                found[case.tool].append(sample)
    return found


def rows(
    case: str,
    n: int,
    samples: Mapping[str, Sequence[Sample]],
    *,
    goal_ms: float | None = None,
    note: str = "",
) -> list[Row]:
    """A row a tool. goal_ms and note are mxt's; ratios are medians of pairs measured side by side."""
    ours = samples.get("mxt", ())
    made = []
    for tool, found in samples.items():
        walls = [s.wall_s * 1e3 for s in found]
        pairs = [a.wall_s / b.wall_s for a, b in zip(ours, found, strict=False) if b.wall_s]
        made.append(
            Row(
                case,
                tool,
                n,
                round(statistics.median(walls), 2),
                [round(w, 2) for w in walls],
                round(statistics.median(s.cpu_s for s in found) * 1e3, 2),
                round(max(s.peak_mib for s in found), 1),
                goal_ms if tool == "mxt" else None,
                round(statistics.median(pairs), 5) if pairs and tool != "mxt" else None,
                note if tool == "mxt" else "",
            )
        )
    return made


def plain_row(case: str, tool: str, n: int, seconds: Sequence[float], **more: object) -> Row:
    """A row of times that were not those of a whole command."""
    walls = [s * 1e3 for s in seconds]
    return Row(case, tool, n, round(statistics.median(walls), 2), [round(w, 2) for w in walls], **more)  # type: ignore[arg-type]


def exponent(points: Sequence[tuple[float, float]]) -> float:
    """k of t = c * n^k by least squares on logarithms; 1 is linear. points: (n, t), at least two."""
    xs, ys = [math.log(n) for n, _ in points], [math.log(t) for _, t in points]
    mx, my = statistics.fmean(xs), statistics.fmean(ys)
    return sum((x - mx) * (y - my) for x, y in zip(xs, ys, strict=True)) / sum((x - mx) ** 2 for x in xs)


# ---- what a result says of where it was measured ---------------------------------------------------


def load_now() -> float:
    """The load average of the last minute."""
    return os.getloadavg()[0]


def cores() -> int:
    return len(os.sched_getaffinity(0))


def warn_if_busy() -> None:
    """Say so where other work would be measured too."""
    if load_now() > 0.3 * cores():
        say(
            f"warning: the load average is {load_now():.2f} on {cores()} cores:"
            " absolute times will be too long"
        )


def machine() -> dict[str, object]:
    """What may explain a figure, and nothing that names the machine."""
    cpu = ""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
            break
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cpu": cpu,
        "cores": cores(),
        "memory_gib": round(memory, 1),
        "kernel": platform.release().partition("-")[0],
        "python": platform.python_version(),
    }


def file_system(folder: Path) -> str:
    """The kind of file system a folder lies on."""
    best, kind = "", ""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, place, type_, *_ = line.split(" ")
        inside = str(folder) == place or str(folder).startswith(place.rstrip("/") + "/")
        if inside and len(place) >= len(best):
            best, kind = place, type_
    return kind


def commit() -> str:
    """The commit that was measured; "+" where files differ from it."""

    def git(*args: str) -> str:
        done = subprocess.run(["git", *args], cwd=REPOSITORY, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", "mxt", "rules")
    return git("rev-parse", "--short=12", "HEAD") + ("+" if changed else "")


@dataclass
class Result:
    """What one benchmark found. facts: further figures, by name."""

    benchmark: str
    quick: bool
    rows: list[Row]
    facts: dict[str, object] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def save(result: Result, folder: Path, began: datetime, load_before: float, work: Path) -> Path:
    """Write a result as JSON; its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{result.benchmark}.json"
    data = {
        "v": 1,
        "benchmark": result.benchmark,
        "quick": result.quick,
        "began": began.isoformat(timespec="seconds").replace("+00:00", "Z"),
        "took_s": round((datetime.now(UTC) - began).total_seconds(), 1),
        "commit": commit(),
        "load": [round(load_before, 2), round(load_now(), 2)],
        "machine": {**machine(), "file_system": file_system(work)},
        "versions": result.versions,
        "facts": result.facts,
        "notes": result.notes,
        "rows": [asdict(row) for row in result.rows],
    }
    path.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def load_result(path: Path) -> Result:
    """Raises BenchmarkError for what is no result."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return Result(
            data["benchmark"],
            data["quick"],
            [Row(**row) for row in data["rows"]],
            data["facts"],
            data["versions"],
            data["notes"],
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BenchmarkError(f"{path.name} is no result of a benchmark: {error}") from None


def say(text: str) -> None:
    """For whoever waits."""
    print(text, file=sys.stderr, flush=True)
