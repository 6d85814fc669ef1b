"""Runs a stage function as the engine does: in a fresh process, from a Run written as JSON.

python -m tests.rules.stage rules.train:train RUN.json
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from mxt.errors import MxtError
from mxt.rule import Run

ROOT = Path(__file__).resolve().parents[2]


def command(entry: str, folder: Path, task: dict[str, Any]) -> tuple[list[str], dict[str, str]]:
    """What starts the stage, and its environment. folder: its outputs, evidence, HOME and TMPDIR."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("evidence", "home", "tmp", "work"):
        (folder / name).mkdir(exist_ok=True)
    for name, path in task.get("outputs", {}).items():
        task["outputs"][name] = str(folder / path)
        if path.endswith("/"):
            (folder / path).mkdir(exist_ok=True)
    task.setdefault("evidence", str(folder / "evidence"))
    file = folder / "task.json"
    file.write_text(json.dumps(task, default=str))
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder / "home"),
        "TMPDIR": str(folder / "tmp"),
        "PYTHONPATH": str(ROOT),
        "PYTHONHASHSEED": "random",
        "LC_ALL": "C.UTF-8",
        "MXT_REPORT_FD": "1",
    }
    return [sys.executable, "-m", "tests.rules.stage", entry, str(file)], environment


def run_stage(
    entry: str, folder: Path, task: dict[str, Any], more: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run to the end, with more environment variables.

    stdout holds the reports; exit code 1 and stderr "error: ..." for a StageError.
    """
    argv, environment = command(entry, folder, task)
    environment |= more or {}
    return subprocess.run(
        argv, env=environment, cwd=folder / "work", capture_output=True, text=True, timeout=600
    )


def main(entry: str, file: str) -> int:
    task = json.loads(Path(file).read_text())
    for name in ("inputs", "outputs"):
        task[name] = {
            k: [Path(i) for i in v] if isinstance(v, list) else Path(v)
            for k, v in task.get(name, {}).items()
            if v is not None
        }
    for name in ("evidence", "progress", "accelerants"):
        if task.get(name):
            task[name] = Path(task[name])
            task[name].mkdir(parents=True, exist_ok=True)
    module, _, function = entry.partition(":")
    try:
        getattr(importlib.import_module(module), function)(Run(**task))
    except MxtError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
