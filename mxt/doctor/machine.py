"""Processor, memory, limits and clock."""

from __future__ import annotations

import os
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from mxt.action.platform import ISA_FLAGS, this_machine
from mxt.doctor.finding import FAIL, OK, WARN, Finding
from mxt.execution.machine import machine_facts, memory_mb

LEAST_FILES = 1024
LEAST_MEMORY_MB = 4096  # what the largest stages of the smallest recipes declare, and something beside it
MADE_IN = 1_735_689_600  # 2025-01-01: a clock that shows less is wrong
SKEW_S = 2.0


def machine_findings() -> Iterator[Finding]:
    machine = this_machine()
    facts = machine_facts()
    fitting = [name for name, flags in ISA_FLAGS.items() if name != "baseline" and flags <= machine.flags]
    sets = f", with {', '.join(fitting)}" if fitting else ""
    yield Finding("processor", OK, f"{machine.arch}{sets}: {facts['cpu']}")
    if machine.arch != "x86_64":
        mend = "keys can be computed here; build on x86_64, or lock a toolchain of your own"
        yield Finding("processor", WARN, "mxt's own toolchain is locked for x86_64", mend)
    elif "avx2" not in fitting:
        mend = "platforms that declare isa = 'avx2' need another machine, or another emulated processor type"
        yield Finding("processor", WARN, "it has no AVX2", mend)
    yield _cores(machine.cores)
    yield _memory()
    yield _files()
    yield _clock()


def _cores(cores: int) -> Finding:
    quota = _quota()
    if quota is not None and quota < cores:
        what = f"{cores} cores, of which this control group may use {quota:g}"
        return Finding("cores", WARN, what, f"mxt build -j{max(1, int(quota))}, or raise the group's limit")
    return Finding("cores", OK, f"{cores} for this process, of {os.cpu_count() or cores}")


def _quota() -> float | None:
    """Cores' worth of time that the control group allows; None where there is no limit."""
    try:
        limit, period = Path("/sys/fs/cgroup/cpu.max").read_text("ascii").split()
        return None if limit == "max" else int(limit) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None


def _memory() -> Finding:
    megabytes = memory_mb()
    free = _available_mb()
    what = f"{megabytes / 1024:.1f} GiB" + (f", {min(free, megabytes) / 1024:.1f} GiB free" if free else "")
    if megabytes < LEAST_MEMORY_MB:
        mend = f"stages declare up to {LEAST_MEMORY_MB // 1024} GiB: with less they run alone, slowly"
        return Finding("memory", WARN, what, mend)
    return Finding("memory", OK, what)


def _available_mb() -> int:
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) >> 10
    except (OSError, ValueError):
        pass
    return 0


def _files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < LEAST_FILES:
        can = hard == resource.RLIM_INFINITY or hard >= LEAST_FILES
        mend = f"ulimit -n {LEAST_FILES if can else hard}" + ("" if can else ", and raise the hard limit")
        return Finding("files", WARN, f"{soft} may be open at once, {LEAST_FILES} are wanted", mend)
    return Finding(
        "files", OK, f"{'any number' if soft == resource.RLIM_INFINITY else soft} may be open at once"
    )


def _clock() -> Finding:
    now = time.time()
    if now < MADE_IN:
        shown = time.strftime("%Y-%m-%d", time.gmtime(now))
        return Finding("clock", FAIL, f"it shows {shown}", "set it: signed records carry the time")
    return Finding("clock", OK, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)))


def folder_clock_skew(folder: Path) -> float:
    """Seconds by which new files in a folder are younger than this machine's clock says."""
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".mxt-doctor-") as file:
        return os.fstat(file.fileno()).st_mtime - time.time()
