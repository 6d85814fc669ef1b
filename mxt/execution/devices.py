"""Which of the host's devices a platform's actions are given."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping

# by how the platform's `arch` begins: the device nodes, as patterns
_NODES: Mapping[str, tuple[str, ...]] = {
    "gfx": ("/dev/kfd", "/dev/dri"),
    "sm_": (
        "/dev/nvidia[0-9]*",
        "/dev/nvidiactl",
        "/dev/nvidia-uvm",
        "/dev/nvidia-uvm-tools",
        "/dev/nvidia-modeset",
        "/dev/nvidia-caps",
    ),
}
# the vendor's description of what a container needs beside the nodes: the driver's libraries
_CDI = {"sm_": "nvidia.com/gpu=all"}
_CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi")


def device_nodes(platform: Mapping[str, object]) -> list[str]:
    """Device nodes, and folders of them, that are there and that the platform's devices are reached by."""
    arch = str(platform.get("arch", ""))
    patterns = [p for prefix, nodes in _NODES.items() if arch.startswith(prefix) for p in nodes]
    return [path for pattern in patterns for path in sorted(glob.glob(pattern))]


def container_devices(platform: Mapping[str, object]) -> list[str]:
    """What to hand to `--device`: a CDI name where the machine describes its devices so, else nodes."""
    arch = str(platform.get("arch", ""))
    for prefix, name in _CDI.items():
        if arch.startswith(prefix) and _described(name.partition("=")[0]):
            return [name]
    return device_nodes(platform)


def device_groups(nodes: list[str]) -> list[int]:
    """The groups, beside root, that own these nodes: whoever uses them must belong to one."""
    groups = set()
    for node in nodes:
        for path in [node, *glob.glob(f"{node}/*")]:
            try:
                groups.add(os.stat(path).st_gid)
            except OSError:
                continue
    return sorted(groups - {0})


def _described(kind: str) -> bool:
    """Whether a CDI file of this machine describes devices of a kind."""
    for folder in _CDI_FOLDERS:
        for path in glob.glob(f"{folder}/*.yaml") + glob.glob(f"{folder}/*.json"):
            try:
                with open(path, encoding="utf-8", errors="replace") as file:
                    if kind in file.read():
                        return True
            except OSError:
                continue
    return False
