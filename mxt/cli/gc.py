"""mxt gc: delete what nothing refers to any more."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

from mxt.cli.options import add_workspace
from mxt.cli.session import Session
from mxt.cli.terminal import plural, size
from mxt.errors import EXIT_OK

EXAMPLES = """
examples:
  mxt gc          delete results, blobs and old progress that nothing refers to
  mxt gc -n       say what would go, delete nothing

Kept are the results that mxt-out links to, pinned ones, what running builds hold, and progress
younger than 14 days.
"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("-n", "--dry-run", action="store_true", help="delete nothing")
    add_workspace(parser)


def run(args: Namespace) -> int:
    session = Session(args)
    session.make_folders()
    session.store.outputs.register_root(session.root / "mxt-out")

    def wait(*_: object) -> None:
        print("  waiting until running builds have a moment", file=sys.stderr)

    swept = session.store.collector.collect(dry_run=args.dry_run, on_wait=wait)
    if not args.dry_run:
        session.store.index.trim()
    verb = "would delete" if args.dry_run else "deleted"
    parts = [
        plural(swept.blobs, "blob"),
        plural(swept.realisations, "realisation"),
        plural(swept.outputs, "output folder"),
        plural(swept.progress, "unfinished action"),
        plural(swept.leftovers, "leftover"),
    ]
    print(f"{verb} {', '.join(parts)}: {size(swept.bytes)}")
    return EXIT_OK
