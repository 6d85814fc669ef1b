"""The limits of a container's processes: this process's own, as engines ask for more than many may have."""

from __future__ import annotations

import resource

from mxt.execution.engine import Engine

_MOST_FILES = 1 << 20


def limit_options(engine: Engine) -> list[str]:
    """For `run`. Without CAP_SYS_RESOURCE nobody may raise them, and podman's defaults do."""
    if engine.kind != "podman":
        return []  # a daemon's own are what it may set
    files = _hard(resource.RLIMIT_NOFILE, _MOST_FILES)
    processes = _hard(resource.RLIMIT_NPROC, _most_processes())
    return ["--ulimit", f"nofile={files}:{files}", "--ulimit", f"nproc={processes}:{processes}"]


def _hard(which: int, most: int) -> int:
    hard = resource.getrlimit(which)[1]
    return most if hard == resource.RLIM_INFINITY else min(hard, most)


def _most_processes() -> int:
    try:
        with open("/proc/sys/kernel/pid_max", encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return 32768
