"""Writes rules/_schema/lm_eval_tasks.txt: the names of all tasks of the installed lm-eval, one a line.

    python tools/make_task_names.py            writes it
    python tools/make_task_names.py --check    exits 1 if it is out of date

A recipe is told of an unknown task before anything is downloaded, on machines without lm-eval, too.
"""

from __future__ import annotations

import logging
import sys
from importlib.metadata import version
from pathlib import Path

FILE = Path(__file__).resolve().parents[1] / "rules/_schema/lm_eval_tasks.txt"


def text() -> str:
    """The file's contents."""
    logging.disable(logging.CRITICAL)
    from lm_eval.tasks import TaskManager

    names = sorted({name for name in TaskManager().all_tasks if name.isprintable()})
    return "\n".join((f"# lm-eval {version('lm-eval')}", *names)) + "\n"


def main() -> int:
    new = text()
    if sys.argv[1:] != ["--check"]:
        FILE.write_text(new, encoding="utf-8")
        print(f"{FILE.name}: {new.count(chr(10)) - 1} names")
        return 0
    if FILE.read_text(encoding="utf-8") == new:
        return 0
    print(f"{FILE.name} is out of date: python tools/make_task_names.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
