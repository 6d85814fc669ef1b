"""mxt build: bring targets up to date."""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from mxt.cli import glance
from mxt.cli.glance import null_line
from mxt.cli.options import add_building, add_labels, add_watch, add_workspace
from mxt.errors import EXIT_OK, UsageError

if TYPE_CHECKING:
    from mxt.cli.session import Session
    from mxt.cli.watch import Seen
    from mxt.execution.build import Built
    from mxt.graph.graph import ActionGraph

EXAMPLES = """
examples:
  mxt build //recipes:tiny_sft_lora      one recipe, all its stages, its receipt
  mxt build //recipes:tiny_sft_lora.train    one stage and what it needs
  mxt build //...                        every target not tagged "manual"
  mxt build -n //...                     what would run, and under which keys
  mxt build -n --estimate //recipes:x    what it takes: memory, hours, money
  mxt build -k -j4 //data:all            after failures too, four at a time
  mxt build //x --events build.jsonl     for CI: one JSON object an event
  mxt build //recipes:x --watch          again whenever what it reads changes

--watch waits through errors and ends with Ctrl-C: exit code 0 while it waits, 8 in the middle of a build.
"""


def add_arguments(parser: ArgumentParser) -> None:
    add_labels(parser)
    parser.add_argument("-n", "--dry-run", action="store_true", help="show what would run; run nothing")
    parser.add_argument(
        "--estimate",
        action="store_true",
        help="with -n: time, memory and money instead of keys, as far as rules can tell before a run",
    )
    parser.add_argument("--json", action="store_true", help="with --estimate: for programs")
    add_building(parser)
    add_watch(parser)
    add_workspace(parser)


def run(args: Namespace) -> int:
    if args.estimate and not args.dry_run:
        raise UsageError("--estimate runs nothing: give it with -n")
    if args.json and not args.estimate:
        raise UsageError("--json belongs to --estimate", hint="a build's events: --events FILE")
    if args.watch and args.estimate:
        raise UsageError("--estimate and --watch: give one of them")
    if args.watch:
        from mxt.cli.watch import watch

        return watch(args, _build)
    return _build(args, None)


def _build(args: Namespace, seen: Seen | None) -> int:
    """One build. seen: takes what a watch must know; a build that is watched takes no shortcut."""
    began = time.monotonic() if seen is not None else glance.began or time.monotonic()
    from mxt.cli.session import Session
    from mxt.cli.shortcut import Shortcut

    session = Session(args)
    if args.estimate:
        from mxt.cli.estimate import show_estimate

        session.make_folders()
        return show_estimate(session, session.analyse(session.resolve(args.labels)), as_json=args.json)
    shortcut = Shortcut(session, args)
    if seen is not None:
        seen.session = session
    elif (look := shortcut.look()) is not None and look.nothing_to_do:
        sys.stdout.write(null_line(look.actions, time.monotonic() - began))
        return EXIT_OK
    elif look is not None and look.changed:
        from mxt.cli.rebuild import rebuild

        code = rebuild(session, shortcut, look, args, began)
        if code is not None:
            return code
    session.make_folders()
    labels = session.resolve(args.labels)
    graph = session.analyse(labels)
    if seen is not None:
        seen.graph = graph
    if args.dry_run:
        from mxt.cli.dry_run import show_plan

        return show_plan(session, graph)
    from mxt.cli.execute import execute, report

    built = execute(session, graph, args)
    if seen is not None:
        seen.built = built
    code = report(graph, built, began)
    if code == EXIT_OK:
        warn_of_failed_tests(session, graph, built)
        shortcut.remember(graph, built)
    return code


def warn_of_failed_tests(session: Session, graph: ActionGraph, built: Built) -> None:
    """A negative verdict fails `mxt test` and no build, but no build hides it."""
    from mxt.cli.terminal import warn
    from mxt.cli.verdict import verdict

    for target in graph.wanted():
        if target.test:
            found = verdict(session, graph, built, target.label)
            if found is not None and not found["passed"]:
                warn(f"{target.label} did not pass: {found.get('summary', '')}")
