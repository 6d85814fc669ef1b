"""What `mxt doctor` should know of the stages' libraries and secrets; the engine knows neither.

Found by its name, as rules/starters is: `findings()` gives (area, status, what, mend) as in
mxt.doctor.finding.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

Row = tuple[str, str, str, str]

_TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
# run in the environment that stages run in; importing takes seconds, so only when asked to
_LOOK = """\
import torch
hip, cuda, there = torch.version.hip, torch.version.cuda, torch.cuda.is_available()
kind = f"ROCm {hip}" if hip else f"CUDA {cuda}" if cuda else "no GPU support"
names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if there else []
print(f"torch {torch.__version__} ({kind}) sees", ", ".join(names) or "no GPU")
"""


def findings(*, devices: bool, deep: bool) -> Iterator[Row]:
    """devices: whether this machine has GPUs. deep: import what is only looked up otherwise."""
    yield _torch(devices, deep=deep)
    yield _token()


def _torch(devices: bool, *, deep: bool) -> Row:
    """By its version alone: importing it takes seconds."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        found = version("torch")
    except PackageNotFoundError:
        mend = "stages that train fail; ./mxtw installs what the lock names"
        return "torch", "warn", "torch is not installed", mend
    if deep:
        said = _asked()
        if not said:
            mend = f"see why: {sys.executable} -I -c 'import torch'"
            return "torch", "fail", f"torch {found} cannot be imported", mend
        return "torch", "ok", said, ""
    build = found.partition("+")[2]
    if build == "cpu":
        what = f"torch {found} is built for processors: it would see no GPU"
        if devices:
            mend = "a toolchain for the device needs its own lock: mxt toolchain lock"
            return "torch", "warn", what, mend
        return "torch", "ok", what, ""
    return (
        "torch",
        "ok",
        f"torch {found}, built for {build or 'NVIDIA GPUs'}; --deep asks it what it sees",
        "",
    )


def _asked() -> str:
    """The last line that torch itself has to say; "" where it cannot be imported."""
    argv = [sys.executable, "-I", "-c", _LOOK]
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    lines = done.stdout.strip().splitlines()
    return lines[-1] if done.returncode == 0 and lines else ""


def _token() -> Row:
    for name in _TOKENS:
        if os.environ.get(name):
            return "token", "ok", f"{name} is set", ""
    home = os.environ.get("HF_HOME") or os.path.expanduser("~/.cache/huggingface")
    path = Path(os.environ.get("HF_TOKEN_PATH") or Path(home, "token"))
    if path.is_file():
        what = f"there is a token in {path}, which stages do not see"
        return "token", "warn", what, f"export HF_TOKEN=$(cat {path})"
    return "token", "ok", "no Hugging Face token; only private and gated repositories need one", ""
