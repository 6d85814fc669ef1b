"""What an action occupies while it runs: the scheduler bounds the sum of what runs at once."""

from __future__ import annotations

from dataclasses import dataclass

from mxt.errors import MxtError


@dataclass(frozen=True)
class Resources:
    """What an action occupies while it runs; in no key.

    cpus: cores. memory_mb: MiB of main memory. gpus: devices. exclusive: nothing else may run.
    """

    cpus: int = 1
    memory_mb: int = 256
    gpus: int = 0
    exclusive: bool = False

    def __post_init__(self) -> None:
        for name, least in (("cpus", 1), ("memory_mb", 0), ("gpus", 0)):
            if getattr(self, name) < least:
                raise MxtError(f"Resources({name}={getattr(self, name)}): must be at least {least}")
