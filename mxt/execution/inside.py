"""Runs one stage function in its own process; started by the launcher, reads its task as JSON from a file.

Usage: python -s -P -S inside.py TASK.json

In a container this is the image's Python, 3.10 or newer, with its own packages. What is imported from here on
has to do with its standard library.
"""

from __future__ import annotations

import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def main(path: str) -> int:
    """0 when the function returned; 1 after an error, which has been reported to mxt."""
    with open(path, encoding="utf-8") as file:
        task = json.load(file)
    there = [p for p in sys.path if p and not p.endswith("mxt/execution")]
    contained = task.get("container")
    # an image's own packages come after mxt's folder, which holds the packages `mxt` and `rules` alone
    sys.path[:] = task["path"] + there if contained else there + task["path"]
    if contained:
        _settle(contained)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]

    from importlib import import_module
    from pathlib import Path

    from mxt import rule
    from mxt.action.canonical import restore
    from mxt.errors import MxtError
    from mxt.rule import Run

    rule.executing = True
    inputs: dict[str, object] = {}
    for name, place in task["inputs"].items():
        group, _, _ = name.rpartition("/")
        if group in task["lists"]:
            inputs.setdefault(group, [])
            inputs[group].append(Path(place))  # type: ignore[attr-defined]
        else:
            inputs[name] = Path(place)
    for name, count in task["lists"].items():
        if count == 0:
            inputs[name] = []
    run = Run(
        params=restore(task["params"]),
        config=restore(task["config"]),
        unkeyed=restore(task["unkeyed"]),
        inputs=inputs,
        outputs={name: Path(place) for name, place in task["outputs"].items()},
        evidence=Path(task["evidence"]),
        progress=Path(task["progress"]) if task["progress"] else None,
        accelerants=Path(task["accelerants"]) if task["accelerants"] else None,
        platform=restore(task["platform"]),
        threads=task["threads"],
    )
    module, _, function = task["entry"].partition(":")
    try:
        package, _, name = module.partition(".")
        if package == "mxt_workspace_rules":
            from mxt.loading.rule_modules import import_own

            loaded = import_own(Path(task["own_rules"]), name)
        else:
            loaded = import_module(module)
        getattr(loaded, function)(run)
    except MxtError as error:
        _tell(
            {
                "error": {
                    "message": error.message,
                    "where": error.where,
                    "hint": error.hint,
                    "excerpt": error.excerpt,
                }
            }
        )
        print(f"error: {error}", file=sys.stderr, flush=True)
        _leave(1)
    except MemoryError:
        _tell({"error": {"message": "out of memory", "where": "", "hint": "", "excerpt": ""}})
        _leave(1)
    except ModuleNotFoundError as error:
        if not contained:
            _crash(error)
        text = f"the toolchain's image has no Python module '{error.name}'"
        hint = "use an image that has it, or build one upon this that installs it"
        _tell({"error": {"message": text, "where": "", "hint": hint, "excerpt": ""}})
        print(f"error: {text}", file=sys.stderr, flush=True)
        _leave(1)
    except BaseException as error:  # noqa: BLE001 - whatever a stage raises is reported, not lost
        _crash(error)
    _leave(0)
    return 0


def _settle(contained: dict[str, Any]) -> None:
    """In a container: what the sandbox would have arranged from outside."""
    for name in contained["unset"]:
        os.environ.pop(name, None)
    os.umask(0o022)
    log = os.open(contained["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    report = os.open(contained["report"], os.O_WRONLY)
    os.set_inheritable(report, True)
    os.environ["MXT_REPORT_FD"] = str(report)


def _crash(error: BaseException) -> None:
    import traceback

    traceback.print_exception(error)
    text = f"{type(error).__name__}: {error}".strip().splitlines()[0][:400]
    _tell({"crash": text})
    _leave(1)


def _tell(message: dict[str, object]) -> None:
    fd = os.environ.get("MXT_REPORT_FD")
    if fd is not None:
        try:
            os.write(int(fd), (json.dumps(message) + "\n").encode())
        except OSError:
            pass


def _leave(code: int) -> None:
    """Exit without tearing down the interpreter: a large library takes a second for that."""
    sys.stdout.flush()
    sys.stderr.flush()
    import threading

    if code == 0 and any(t is not threading.main_thread() and not t.daemon for t in threading.enumerate()):
        sys.exit(code)
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
