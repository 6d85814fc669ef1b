"""mxt log: the log and the evidence of an action's last run."""

from __future__ import annotations

import os
import shutil
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from mxt.action.action import ActionId
from mxt.cli.options import add_workspace
from mxt.cli.session import Session
from mxt.cli.terminal import duration, size
from mxt.errors import EXIT_OK, GraphError, did_you_mean

EXAMPLES = """
examples:
  mxt log //recipes:tiny_sft_lora.train            what its last run said
  mxt log //recipes:tiny_sft_lora.shards --action 0001   one of several actions
  mxt log //recipes:tiny_sft_lora.train --list     its evidence files
  mxt log //recipes:tiny_sft_lora.train --file metrics.jsonl
"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("label", metavar="LABEL", help="a target")
    parser.add_argument(
        "--action", metavar="NAME", help="which of a target's actions (default: the only one)"
    )
    parser.add_argument("--list", action="store_true", help="list the evidence files instead")
    parser.add_argument(
        "--file", metavar="NAME", default="log.txt", help="which evidence file (default: log.txt)"
    )
    add_workspace(parser)


def run(args: Namespace) -> int:
    session = Session(args)
    labels = session.resolve([args.label], keep_manual=True)
    graph = session.analyse(labels)
    names = [identity.name for label in graph.requested for identity in graph.targets[label].actions]
    if not names:
        raise GraphError(f"'{args.label}' has no actions of its own", hint="ask for one of its stages")
    if args.action is None and len(names) > 1:
        raise GraphError(
            f"'{args.label}' has {len(names)} actions",
            hint=f"choose one with --action: {', '.join(names[:8])}",
        )
    name = names[0] if args.action is None else args.action
    if name not in names:
        raise GraphError(f"'{args.label}' has no action '{name}'{did_you_mean(name, names)}")
    folder = newest_run(session, ActionId(graph.requested[0], name))
    if args.list:
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            name = os.fsencode(path.relative_to(folder)).decode(errors="backslashreplace")
            print(f"{size(path.stat().st_size):>10}  {name}")
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
    with file.open("rb") as source:
        sys.stdout.flush()
        shutil.copyfileobj(source, sys.stdout.buffer)
        sys.stdout.buffer.flush()
    return EXIT_OK


def newest_run(session: Session, identity: ActionId) -> Path:
    """The evidence folder of an action's last run, failed ones included; says on stderr which it is."""
    store = session.store
    found: list[tuple[str, Path]] = []
    for entry in store.history.history(identity.label, identity.name):
        found += _runs(store.layout.evidence(entry.key))
    found += _noted(store.layout.state / "attempts", identity)
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
