"""What is known of each device that a recipe may name; sources in docs/devices.md."""

from __future__ import annotations

from typing import NamedTuple


class Device(NamedTuple):
    """maker: "amd", "nvidia" or "cpu". arch: as its compiler names it. units: compute units or
    multiprocessors. memory_gib: of one device, as marketed (GB for GiB where the maker counts so).
    bf16_tflops: dense peak of the data sheet. fp8, mxfp4: whether its matrix units compute in that type.
    gpus: how many of one machine a run may take. reason: why no other number.
    """

    maker: str
    arch: str
    units: int
    memory_gib: int
    bf16_tflops: float
    fp8: bool
    mxfp4: bool
    gpus: tuple[int, ...]
    reason: str = ""

    @property
    def allowed(self) -> str:
        """The numbers of GPUs in words."""
        *others, last = map(str, self.gpus)
        return f"{', '.join(others)} or {last}" if others else last

    @property
    def why(self) -> str:
        """Why no other number, as the second line of a message."""
        return f"\n{self.reason}" if self.reason else ""


XGMI = "between fewer than all 8 the links are uneven (xGMI)"
EVEN = (1, 2, 4, 8)  # the root MXTBUILD has a platform for each

DEVICES: dict[str, Device] = {
    "mi300x": Device("amd", "gfx942", 304, 192, 1307.4, True, False, (1, 8), XGMI),
    "mi325x": Device("amd", "gfx942", 304, 256, 1307.4, True, False, (1, 8), XGMI),
    "mi350x": Device("amd", "gfx950", 256, 288, 2306.9, True, True, (1, 8), XGMI),
    "mi355x": Device("amd", "gfx950", 256, 288, 2516.6, True, True, (1, 8), XGMI),
    "mi250x": Device("amd", "gfx90a", 110, 64, 191.5, False, False, EVEN),
    "gfx1201": Device("amd", "gfx1201", 64, 32, 191.4, True, False, EVEN),
    "a100": Device("nvidia", "sm_80", 108, 80, 311.9, False, False, EVEN),
    "h100": Device("nvidia", "sm_90", 132, 80, 989.4, True, False, EVEN),
    "h200": Device("nvidia", "sm_90", 132, 141, 989.4, True, False, EVEN),
    "cpu": Device("cpu", "", 0, 0, 0.0, False, False, (0,), "leave it out: a processor has no GPU"),
}

# The environment of every run on the MI300X family: a plan may change a value and never removes a name.
MI300X_ENV: dict[str, str] = {
    "PYTORCH_ROCM_ARCH": "gfx942",
    "HSA_NO_SCRATCH_RECLAIM": "1",
    "HIP_FORCE_DEV_KERNARG": "1",
    "GPU_MAX_HW_QUEUES": "1",
    "NVTE_CK_USES_BWD_V3": "1",
    "NVTE_CK_IS_V3_ATOMIC_FP32": "1",
    "PRIMUS_TURBO_ATTN_V3_ATOMIC_FP32": "1",
    "NCCL_MIN_NCHANNELS": "112",
}


def family_of(platform: str) -> str | None:
    """The device that a platform's name begins with: "cpu_avx512" is a "cpu"; None for an unknown one."""
    head = platform.partition("_")[0]
    return head if head in DEVICES else None
