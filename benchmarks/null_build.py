"""Null builds of N genrules, each with its own source and output, beside ninja in the same run.

    .venv/bin/python benchmarks/null_build.py 10 1000 10000

Prints the median of several runs in turn (mxt, ninja, mxt, ninja, ...) and their ratio: machines are noisy,
so one number alone says little. The first build is made without a sandbox and is not timed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
PYTHON = REPOSITORY / ".venv/bin/python"


def workspace(root: Path, count: int) -> None:
    """N sources, an MXTBUILD and a build.ninja that copy each."""
    (root / "src").mkdir(parents=True)
    for i in range(count):
        (root / f"src/{i}.txt").write_text(f"{i}\n")
    call = 'genrule(name = "t%d" % i, srcs = ["src/%d.txt" % i], outs = ["o%d.txt" % i], cmd = "cp $< $@")'
    (root / "MXTBUILD").write_text(f"[{call} for i in range({count})]\n")
    lines = ["rule cp\n  command = cp $in $out\n"]
    lines += [f"build ninja-out/o{i}.txt: cp src/{i}.txt\n" for i in range(count)]
    (root / "build.ninja").write_text("".join(lines))


def seconds(command: list[str], root: Path, env: dict[str, str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, cwd=root, env=env, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("counts", nargs="*", type=int, default=[10, 1000, 10000])
    parser.add_argument("--runs", type=int, default=9)
    args = parser.parse_args()
    ninja = shutil.which("ninja") or str(PYTHON.parent / "ninja")
    print(f"{'targets':>8}  {'mxt ms':>8}  {'ninja ms':>8}  {'ratio':>6}")
    for count in args.counts:
        with tempfile.TemporaryDirectory(prefix="mxt-bench-") as folder:
            root = Path(folder, "ws")
            workspace(root, count)
            env = {**os.environ, "HOME": folder, "XDG_CONFIG_HOME": folder}
            mxt = [str(PYTHON), "-I", "-S", str(REPOSITORY / "mxt/__main__.py"), "build", "//..."]
            subprocess.run([*mxt, "--no-sandbox"], cwd=root, env=env, check=True, capture_output=True)
            subprocess.run([ninja], cwd=root, check=True, capture_output=True)
            ours, theirs = [], []
            for _ in range(args.runs + 1):
                ours.append(seconds(mxt, root, env))
                theirs.append(seconds([ninja], root, env))
            # the first pair warms the page cache and re-hashes what was written a moment ago
            a, b = statistics.median(ours[1:]), statistics.median(theirs[1:])
            print(f"{count:>8}  {a * 1e3:>8.1f}  {b * 1e3:>8.1f}  {a / b:>6.1f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
