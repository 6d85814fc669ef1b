"""mxt log: the log and the evidence of an action's runs, and the list of them; the list of builds."""

from __future__ import annotations

import os
import shutil
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mxt.cli.options import add_workspace
from mxt.errors import EXIT_OK, GraphError, UsageError, did_you_mean
from mxt.words import duration, plural, short_digests, size

if TYPE_CHECKING:
    from mxt.action.action import ActionId
    from mxt.cli.session import Session

EXAMPLES = """
examples:
  mxt log //recipes:tiny_sft_lora.train            what its last run said
  mxt log //recipes:tiny_sft_lora.shards --action 0001   one of several actions
  mxt log //recipes:tiny_sft_lora.train --list     its evidence files
  mxt log //recipes:tiny_sft_lora.train --file metrics.jsonl
  mxt log //recipes:tiny_sft_lora.train --history  all its runs, and why
  mxt log //recipes:tiny_sft_lora.train --run 2    what its second run said
  mxt log --builds                                 the last builds, newest first

Runs are numbered from the oldest that the store still knows. 'mxt gc' forgets results that nothing
refers to, and their runs.
"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("label", metavar="LABEL", nargs="?", help="a target")
    parser.add_argument(
        "--action", metavar="NAME", help="which of a target's actions (default: the only one)"
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--list", action="store_true", help="list the evidence files instead")
    what.add_argument(
        "--file", metavar="NAME", default="log.txt", help="which evidence file (default: log.txt)"
    )
    what.add_argument("--history", action="store_true", help="all runs of the target's actions")
    what.add_argument("--builds", action="store_true", help="the builds, or those that reached LABEL")
    parser.add_argument("--run", metavar="N", type=_number, help="which run, as --history numbers them")
    parser.add_argument("--all", action="store_true", help="--history, --builds: also the older ones")
    parser.add_argument("--json", action="store_true", help="print one JSON object, complete")
    add_workspace(parser)


def _number(text: str) -> int:
    from argparse import ArgumentTypeError

    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"'{text}' is not a whole number above 0")
    return int(text)


def run(args: Namespace) -> int:
    if args.run is not None and (args.history or args.builds):
        raise UsageError("--run goes with a log, --list or --file, not with a list of runs")
    from mxt.action.action import ActionId
    from mxt.cli.session import Session

    session = Session(args)
    if args.builds:
        return _builds(session, args)
    if args.label is None:
        raise UsageError("no target is named", hint="mxt log LABEL, or mxt log --builds")
    labels = session.resolve([args.label], keep_manual=True)
    if len(labels) > 1:
        raise UsageError(f"'{args.label}' names {len(labels)} targets", hint=f"name one of them: {labels[0]}")
    graph = session.analyse(labels)
    names = [identity.name for label in graph.requested for identity in graph.targets[label].actions]
    if not names:
        own = any(label in graph.targets for label in graph.requested)
        raise GraphError(
            f"'{args.label}' {'has no actions of its own' if own else 'is a file: no action makes it'}",
            hint="ask for one of its stages" if own else "ask for a target",
        )
    if args.action is not None and args.action not in names:
        raise GraphError(f"'{args.label}' has no action '{args.action}'{did_you_mean(args.action, names)}")
    if args.history:
        wanted = names if args.action is None else [args.action]
        return _history(session, [ActionId(graph.requested[0], name) for name in wanted], args)
    if args.action is None and len(names) > 1:
        raise GraphError(
            f"'{args.label}' has {len(names)} actions",
            hint=f"choose one with --action: {', '.join(names[:8])}",
        )
    identity = ActionId(graph.requested[0], names[0] if args.action is None else args.action)
    if args.run is not None:
        return _show(_chosen(session, identity, args), args)
    return _show(newest_run(session, identity), args)


def _show(folder: Path, args: Namespace) -> int:
    """A run's evidence file, or the list of them."""
    if args.list:
        files = sorted(p for p in folder.rglob("*") if p.is_file())
        named = {
            os.fsencode(p.relative_to(folder)).decode(errors="backslashreplace"): p.stat().st_size
            for p in files
        }
        if args.json:
            _print_json({"v": 1, "run": folder.name, "files": named})
            return EXIT_OK
        for name, count in named.items():
            print(f"{size(count):>10}  {name}")
        return EXIT_OK
    file = folder / args.file
    if not file.is_file() or (
        folder not in file.resolve().parents and not file.resolve().is_relative_to(folder.resolve())
    ):
        names = [str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()]
        raise GraphError(
            f"this run left no '{args.file}'{did_you_mean(args.file, names)}",
            hint="--list shows what it left",
        )
    if args.json:
        text = file.read_bytes().decode("utf-8", "replace")
        _print_json({"v": 1, "run": folder.name, "file": args.file, "text": text})
        return EXIT_OK
    if not file.stat().st_size:
        _say_empty(folder, args)
    with file.open("rb") as source:
        sys.stdout.flush()
        shutil.copyfileobj(source, sys.stdout.buffer)
        sys.stdout.buffer.flush()
    return EXIT_OK


def _say_empty(folder: Path, args: Namespace) -> None:
    """On stderr: that there is nothing to see, and what there is beside it."""
    others = sorted(
        str(p.relative_to(folder))
        for p in folder.rglob("*")
        if p.is_file() and p.name != args.file and p.stat().st_size
    )
    what = "the log is empty: the action wrote nothing" if args.file == "log.txt" else f"{args.file} is empty"
    beside = f"; it also left {', '.join(others[:6])}: --file NAME shows one" if others else ""
    print(f"  {what}{beside}", file=sys.stderr)


def _chosen(session: Session, identity: ActionId, args: Namespace) -> Path:
    """The evidence folder of the run that --run names; says on stderr what run that was, in full."""
    from mxt.cli.changes import change_lines
    from mxt.cli.log_builds import local_time, width
    from mxt.cli.log_history import runs_of

    runs = runs_of(session.store, identity)
    number: int = args.run
    if number > len(runs):
        raise GraphError(
            f"'{identity}' has {plural(len(runs), 'run')}, not {number}", hint="--history lists them"
        )
    run = runs[number - 1]
    took = "" if run.wall_s is None else f", {duration(run.wall_s)}"
    resumed = ", resumed" if run.resumed else ""
    head = (
        f"{identity}: run {run.number} of {len(runs)}, {local_time(run.started)}, {run.status}{took}{resumed}"
    )
    print(head, file=sys.stderr)
    print(f"  key {short_digests(run.key)}, build {run.build[:8] or 'not known'}", file=sys.stderr)
    if run.machine or run.sandbox:
        facts = ", ".join(f"{name} {value}" for name, value in run.machine.items())
        print(f"  sandbox {run.sandbox}; {facts}", file=sys.stderr)
    print("  why it ran:", file=sys.stderr)
    for change in run.why:
        for line in change_lines(change, width(), "    "):
            print(line, file=sys.stderr)
    if not run.folder.is_dir():
        raise GraphError(f"the evidence of run {run.number} was deleted", where=str(identity))
    return run.folder


def _history(session: Session, identities: Sequence[ActionId], args: Namespace) -> int:
    from mxt.cli.log_builds import SHOWN, width
    from mxt.cli.log_history import history_table, runs_of

    found = {identity: runs_of(session.store, identity) for identity in identities}
    if args.json:
        actions = [
            {"label": i.label, "action": i.name, "runs": [run.form() for run in runs]}
            for i, runs in found.items()
        ]
        _print_json({"v": 1, "actions": actions})
        return EXIT_OK
    if not any(found.values()):
        raise GraphError(
            f"'{args.label}' has not run here", hint="build it first; a result of others has no log here"
        )
    first = True
    for identity, runs in found.items():
        print(f"{'' if first else chr(10)}{identity}  {plural(len(runs), 'run')}")
        first = False
        shown = runs if args.all else runs[-SHOWN:]
        for line in history_table(shown, width()) if runs else ():
            print(line)
        if len(shown) < len(runs):
            print(f"and {len(runs) - len(shown)} older; --all shows them")
    return EXIT_OK


def _builds(session: Session, args: Namespace) -> int:
    from mxt.cli.log_builds import SHOWN, all_records, build_form, build_table, reaching, width

    found, damaged = all_records(session.workspace.store / "state")
    if args.label is not None:
        labels = session.resolve([args.label], keep_manual=True)
        found = reaching(found, {*labels, *session.analyse(labels).targets})
    if args.json:
        _print_json({"v": 1, "builds": [build_form(record) for record in found], "damaged": damaged})
        return EXIT_OK
    if not found:
        which = f"no build that reached '{args.label}'" if args.label else "no build"
        raise GraphError(
            f"{which} is recorded in this store", hint="a build that finds all as it was leaves none"
        )
    shown = found if args.all else found[:SHOWN]
    for line in build_table(shown, width()):
        print(line)
    if len(shown) < len(found):
        print(f"and {len(found) - len(shown)} older; --all shows them")
    if damaged:
        print(f"{plural(damaged, 'record')} cannot be read: 'mxt cache repair' removes them")
    return EXIT_OK


def _print_json(form: object) -> None:
    import json

    print(json.dumps(form, indent=2, ensure_ascii=False))


def newest_run(session: Session, identity: ActionId) -> Path:
    """The evidence folder of an action's last run, failed ones included; says on stderr which it is."""
    store = session.store
    found: list[tuple[str, Path]] = []
    for entry in store.history.history(identity.label, identity.name):
        found += _runs(store.layout.evidence(entry.key))
    found += _noted(store.layout.state / "attempts.log", identity)
    if not found:
        raise GraphError(
            f"'{identity}' has not run here", hint="build it first; a result of others has no log here"
        )
    name, folder = max(found)
    key = folder.parent.name
    record = next((r for r in store.actions.runs(key) if r.name == name), None)
    status = f"ran {duration(float(record.wall_s))}" if record else "failed or was interrupted"
    print(f"{identity}: {name}, {status}", file=sys.stderr)
    return folder


def _runs(folder: Path) -> list[tuple[str, Path]]:
    try:
        return [(entry.name, Path(entry.path)) for entry in os.scandir(folder) if entry.is_dir()]
    except OSError:
        return []


def _noted(folder: Path, identity: ActionId) -> list[tuple[str, Path]]:
    """Runs that never gave a result are found by the note that the runner left."""
    from mxt.execution.attempts import read_attempt

    path = read_attempt(folder, identity)
    return [(path.name, path)] if path is not None and path.is_dir() else []
