"""What machine a run happened on: evidence, in no key."""

from __future__ import annotations

import os
from functools import cache


@cache
def machine_facts() -> dict[str, str | int]:
    """cpu (model name), cores (available to this process), memory_mb (MiB), kernel, python."""
    import platform

    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_mb": memory_mb(),
        "kernel": os.uname().release,
        "python": platform.python_version(),
    }


@cache
def memory_mb() -> int:
    """MiB of main memory that this process may use: the machine's, or its control group's if less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        with open("/sys/fs/cgroup/memory.max", encoding="ascii") as file:
            text = file.read().strip()
        if text.isdigit():
            total = min(total, int(text))
    except OSError:
        pass
    return total >> 20


def gpu_count() -> int:
    """Devices that actions may declare."""
    from mxt.action.platform import this_machine

    return len(this_machine().gpus)


def _cpu_model() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return os.uname().machine
