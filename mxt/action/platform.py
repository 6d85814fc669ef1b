"""A platform: the declared device of an action, its digest, and whether this machine is one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from mxt.errors import PlatformError

# What a declared instruction set asks of the processor's flags. Declaring one says that results are
# capped to it, so a processor with more fits as well; `env` does the capping.
ISA_FLAGS: Mapping[str, frozenset[str]] = {
    "baseline": frozenset(),
    "sse4_2": frozenset({"sse4_2"}),
    "avx2": frozenset({"avx2", "fma", "bmi2", "f16c"}),
    "avx512": frozenset({"avx512f", "avx512dq", "avx512bw", "avx512vl"}),
    "neon": frozenset({"asimd"}),
}

# properties that each device must have, beside `arch`
_OF_DEVICES = ("compute_units", "partition")


class Mismatch(NamedTuple):
    """One property in which this machine is not the platform."""

    property: str
    declared: str
    found: str

    def __str__(self) -> str:
        return f"{self.property}: declared {self.declared}, this machine has {self.found}"


@dataclass(frozen=True)
class Machine:
    """What this machine is. flags: the processor's features. cores: those this process may use.

    gpus: what each device has of the properties that a platform declares (arch, compute_units,
    partition). Nothing looks for devices yet, so a platform that needs one is refused here.
    """

    arch: str
    flags: frozenset[str]
    cores: int
    gpus: tuple[Mapping[str, Any], ...] = ()


def platform_digest(properties: Mapping[str, Any]) -> str:
    """BLAKE3 of the canonical form of the declared properties; what is None counts as not declared."""
    from blake3 import blake3

    from mxt.action.canonical import canonical, dump

    return blake3(dump(canonical({k: v for k, v in properties.items() if v is not None}))).hexdigest()


def check_machine(properties: Mapping[str, Any], *, name: str = "", machine: Machine | None = None) -> None:
    """Raises PlatformError, naming every property, where this machine is not the declared platform."""
    mismatches = compare(properties, machine or this_machine())
    if not mismatches:
        return
    declared = f"platform '{name}'" if name else "the declared platform"
    facts = "\n".join(f"    {m}" for m in mismatches)
    raise PlatformError(
        f"this machine is not {declared}",
        excerpt=facts,
        hint="build on such a machine or fetch results made on one; results are found without the device, "
        "only running an action needs it",
    )


def compare(properties: Mapping[str, Any], machine: Machine) -> list[Mismatch]:
    """Every declared property that this machine lacks; [] where it fits."""
    wanted = properties.get("gpus") or (1 if any(properties.get(k) for k in _OF_DEVICES) else 0)
    found = []
    # with devices, arch names theirs
    arch = properties.get("arch")
    if arch is not None and not wanted and arch != machine.arch:
        found.append(Mismatch("arch", arch, machine.arch))
    isa = properties.get("isa")
    if isa is not None and (problem := _isa(isa, machine)):
        found.append(Mismatch("isa", isa, problem))
    threads = properties.get("threads")
    if threads is not None and threads > machine.cores:
        # libraries quietly start fewer threads then, and a sum over fewer parts has other last bits
        found.append(Mismatch("threads", f"{threads}", f"{machine.cores} cores for this process"))
    if wanted:
        found += _devices(wanted, properties, machine)
    return found


@cache
def this_machine() -> Machine:
    """The machine that runs this code."""
    return Machine(os.uname().machine, _cpu_flags(), len(os.sched_getaffinity(0)))


def _isa(isa: str, machine: Machine) -> str:
    wanted = ISA_FLAGS.get(isa)
    if wanted is None:
        return f"no test for it (known: {', '.join(ISA_FLAGS)})"
    missing = sorted(wanted - machine.flags)
    return f"no {', '.join(missing)}" if missing else ""


def _devices(wanted: int, properties: Mapping[str, Any], machine: Machine) -> list[Mismatch]:
    asked = {k: properties[k] for k in ("arch", *_OF_DEVICES) if properties.get(k) is not None}
    fitting = [gpu for gpu in machine.gpus if all(gpu.get(k) == v for k, v in asked.items())]
    if len(fitting) >= wanted:
        return []
    there = "; ".join(_words(gpu) for gpu in machine.gpus) or "none"
    return [Mismatch("gpus", f"{wanted} with {_words(asked)}", there)]


def _words(properties: Mapping[str, Any]) -> str:
    return ", ".join(f"{k} {v}" for k, v in properties.items()) or "any properties"


def _cpu_flags() -> frozenset[str]:
    """The processor's features as the kernel names them ("flags" on x86, "Features" on ARM)."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                key, _, value = line.partition(":")
                if key.strip() in ("flags", "Features"):
                    return frozenset(value.split())
    except OSError:
        pass
    return frozenset()
