"""GPUs: device nodes, drivers, permissions, and what mxt would make of them."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from mxt.action.platform import this_machine
from mxt.doctor.finding import FAIL, OK, WARN, Finding

_VENDORS = {"0x10de": "NVIDIA", "0x1002": "AMD"}
_DISPLAY = ("0x0300", "0x0302", "0x0380", "0x1200")  # PCI classes of display controllers and accelerators


def has_devices(top: Path = Path("/")) -> bool:
    """Whether there is a device that a program could try to use, permitted or not."""
    return any(True for _ in _nvidia(top)) or any(True for _ in _amd(top))


def device_findings(top: Path = Path("/")) -> Iterator[Finding]:
    """top: where dev/, proc/ and sys/ are."""
    seen = [*_nvidia(top), *_amd(top)]
    yield from seen
    bus = _on_the_bus(top)
    for vendor, count in bus.items():
        if not any(vendor in f.what for f in seen):
            plural = "s" if count > 1 else ""
            what = f"{count} {vendor} device{plural} on the bus, and no driver for it"
            yield Finding(
                "gpu",
                WARN,
                what,
                f"install {vendor}'s driver, or load its kernel module; in a container pass the devices in",
            )
    if not seen and not bus:
        yield Finding("gpu", OK, "none; recipes for the platform 'cpu' run")
    found = this_machine().gpus
    if any(f.status == OK for f in seen) and not found:
        mend = "actions that declare GPUs are refused; results made elsewhere are found"
        yield Finding("gpu", WARN, "this mxt does not use the devices yet", mend)


def _nvidia(top: Path) -> Iterator[Finding]:
    nodes = [p for p in (top / "dev").glob("nvidia*") if p.name.removeprefix("nvidia").isdigit()]
    driver = _first_line(top / "proc/driver/nvidia/version")
    if not nodes and not driver:
        return
    if not nodes:
        yield Finding(
            "gpu",
            WARN,
            "NVIDIA's driver is loaded, and there is no /dev/nvidia0",
            "nvidia-modprobe -c0, or pass the devices into the container (--gpus all)",
        )
        return
    closed = [str(p) for p in nodes if not os.access(p, os.R_OK | os.W_OK)]
    if closed:
        yield Finding(
            "gpu",
            FAIL,
            f"NVIDIA: no permission for {', '.join(closed)}",
            f"chmod a+rw {closed[0]}, or join its group",
        )
        return
    listed = _ask(["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"])
    for line in listed or [f"devices: {len(nodes)}; nvidia-smi does not answer"]:
        yield Finding("gpu", OK, f"NVIDIA {line.strip()}".replace("NVIDIA NVIDIA", "NVIDIA"))


def _amd(top: Path) -> Iterator[Finding]:
    node = top / "dev/kfd"
    nodes = top / "sys/class/kfd/kfd/topology/nodes"
    if not node.exists():
        return
    if not os.access(node, os.R_OK | os.W_OK):
        mend = "usermod -a -G render,video $USER, then log in again"
        yield Finding("gpu", FAIL, "AMD: no permission for /dev/kfd", mend)
        return
    version = _first_line(top / "sys/module/amdgpu/version")
    driver = f", driver {version}" if version else ""
    for place in sorted(nodes.glob("*/properties"), key=lambda p: p.parent.name.zfill(4)):
        facts = dict(line.split(None, 1) for line in _lines(place) if " " in line)
        target = int(facts.get("gfx_target_version", "0") or 0)
        if target:  # the others are processors
            isa = f"gfx{target // 10000}{target // 100 % 100:x}{target % 100:x}"
            units = int(facts.get("simd_count", 0)) // max(1, int(facts.get("simd_per_cu", 1)))
            yield Finding("gpu", OK, f"AMD {isa}, {units} compute units{driver}")


def _on_the_bus(top: Path) -> dict[str, int]:
    found: dict[str, int] = {}
    for device in (top / "sys/bus/pci/devices").glob("*"):
        vendor = _VENDORS.get(_first_line(device / "vendor"))
        # the kernel's own bridges and sound functions have other classes
        if vendor is not None and _first_line(device / "class")[:6] in _DISPLAY:
            found[vendor] = found.get(vendor, 0) + 1
    return found


def _ask(argv: list[str]) -> list[str] | None:
    """The lines that a command prints, or None where it fails."""
    if shutil.which(argv[0]) is None:
        return None
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=10, stdin=subprocess.DEVNULL, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip().splitlines() or None if done.returncode == 0 else None


def _lines(path: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return path.read_text("ascii", "replace").splitlines()
    return []


def _first_line(path: Path) -> str:
    lines = _lines(path)
    return lines[0].strip() if lines else ""
