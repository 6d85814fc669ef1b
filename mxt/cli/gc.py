"""mxt gc: delete what nothing refers to any more, or only what does not fit."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from mxt.cli.options import add_workspace
from mxt.cli.terminal import warn
from mxt.errors import EXIT_OK, UsageError
from mxt.words import plural, size

if TYPE_CHECKING:
    from mxt.store.gc import Swept

EXAMPLES = """
examples:
  mxt gc                   delete results, blobs and old progress of no use
  mxt gc -n                say what would go, delete nothing
  mxt gc --max-size 50GB   delete only until the store takes no more than that

Kept are the results that mxt-out links to, pinned ones, what running builds hold, and progress
younger than 14 days. With --max-size other results stay as long as they fit: those that no build has
used for longest go first, and what is kept whatever the size is never touched.

Sizes: 50G and 50GiB count in 1024s, 50GB in 1000s; units K, M, G, T, P; 1.5T; a plain number is bytes.
"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("-n", "--dry-run", action="store_true", help="delete nothing")
    parser.add_argument("--max-size", metavar="SIZE", help="keep what fits into this: 50GB, 200GiB, 1.5T")
    add_workspace(parser)


def run(args: Namespace) -> int:
    from mxt.store.fit import parse_size

    limit = None if args.max_size is None else parse_size(args.max_size)
    from mxt.cli.session import Session
    from mxt.execution.build_record import unfinished

    session = Session(args)
    place = session.workspace.store
    if not any((place / name).exists() for name in ("format", "cas", "ac")):
        raise UsageError(
            "there is no store", where=str(place), hint="the first build makes it; --store names another"
        )
    session.make_folders()
    store = session.store
    store.outputs.register_root(session.root / "mxt-out")

    def wait(*_: object) -> None:
        print("  waiting until running builds have a moment", file=sys.stderr)

    used = {} if limit is None else last_used(store.layout.state)
    swept = store.collector.collect(
        dry_run=args.dry_run,
        max_size=limit,
        used=used,
        unfinished=unfinished(store.layout.state),
        on_wait=wait,
    )
    if not args.dry_run:
        store.index.trim()
    verb = "would delete" if args.dry_run else "deleted"
    parts = [
        plural(swept.blobs, "blob"),
        plural(swept.realisations, "result"),
        plural(swept.outputs, "output folder"),
        plural(swept.progress, "unfinished action"),
        plural(swept.leftovers, "leftover"),
    ]
    print(f"{verb} {', '.join(parts)}: {size(swept.bytes)}")
    if limit is not None:
        _say_size(swept, args.max_size, args.dry_run)
    return EXIT_OK


def _say_size(swept: Swept, asked: str, dry_run: bool) -> None:
    limit = size(swept.limit)
    if asked.strip().lower().endswith("b") and not asked.strip().lower().endswith("ib"):
        limit = f"{asked.strip()} ({limit})"  # counted in 1000s, where all else here counts in 1024s
    print(f"the store {'would take' if dry_run else 'takes'} {size(swept.total)} of {limit}")
    if swept.total > swept.limit:
        held = ", ".join(f"{name} {size(count)}" for name, count in swept.held.items() if count)
        warn(f"--max-size {asked} cannot be reached: {size(sum(swept.held.values()))} must stay ({held})")
        if not swept.held["results"]:
            return
        print(
            "  hint: results stay that mxt-out links to: delete the links of targets that you no longer want",
            file=sys.stderr,
        )


def last_used(state: Path) -> dict[str, float]:
    """Action key -> when a recorded build last ran or found it, seconds since 1970. state: the store's."""
    from datetime import datetime

    from mxt.errors import StoreError
    from mxt.execution.build_record import read_record, records

    used: dict[str, float] = {}
    for path in records(state):  # newest first
        try:
            record = read_record(path)
            when = datetime.fromisoformat(record.began).timestamp()
        except (StoreError, ValueError):
            continue
        for step in record.steps:
            used.setdefault(step.key, when)
    return used
