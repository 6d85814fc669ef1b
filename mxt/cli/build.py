"""mxt build: bring targets up to date."""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from mxt.cli import glance
from mxt.cli.glance import null_line
from mxt.cli.options import add_building, add_labels, add_watch, add_workspace
from mxt.errors import EXIT_BUILD, EXIT_INTERRUPTED, EXIT_OK, GraphError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from mxt.action.action import ActionId
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
  mxt build -k -j4 //data:all            after failures too, four at a time
  mxt build //x --events build.jsonl     for CI: one JSON object an event
  mxt build //recipes:x --watch          again whenever what it reads changes

--watch waits through errors and ends with Ctrl-C: exit code 0 while it waits, 8 in the middle of a build.
"""


def add_arguments(parser: ArgumentParser) -> None:
    add_labels(parser)
    parser.add_argument("-n", "--dry-run", action="store_true", help="show what would run; run nothing")
    add_building(parser)
    add_watch(parser)
    add_workspace(parser)


def run(args: Namespace) -> int:
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
    from mxt.cli.test import verdict

    for target in graph.wanted():
        if target.test:
            found = verdict(session, graph, built, target.label)
            if found is not None and not found["passed"]:
                warn(f"{target.label} did not pass: {found.get('summary', '')}")


def execute(
    session: Session,
    graph: ActionGraph,
    args: Namespace,
    *,
    effects: bool = False,
    known: Mapping[ActionId, str] | None = None,
    untouched: Callable[[Iterable[tuple[str, str]]], str] | None = None,
) -> Built:
    """Run the graph with the options of the command line; shows progress on standard error.

    effects: whether effects may be carried out; raises GraphError where one would be and may not.
    known, untouched: of a build whose graph is a part only (see mxt.execution.build.build and Recorder).
    """
    import secrets

    from mxt.cli.progress import Progress
    from mxt.execution.build import Options, build
    from mxt.execution.build_record import Recorder
    from mxt.execution.events import EventFile, Events, ProfileFile

    effect = next((t.label for t in graph.wanted() if t.effect), None)
    if effect and not effects:
        raise GraphError(f"'{effect}' is an effect; it is run, not built", hint=f"mxt run {effect}")
    identity = secrets.token_hex(8)
    events = Events(identity)
    files: list[EventFile | ProfileFile] = []
    if args.events:
        files.append(EventFile(Path(args.events), identity))
    if args.profile:
        files.append(ProfileFile(Path(args.profile)))
    for file in files:
        events.listen(file)
    progress = Progress(len(graph.actions), verbose=args.verbose)
    events.listen(progress)
    recorder = Recorder(session.store.layout.state, identity, getattr(args, "labels", None) or [args.label])
    if untouched is not None:
        recorder.untouched = untouched
    events.listen(recorder)
    if "loader" in vars(session):
        session.loader.close()
    try:
        built = build(
            session.root,
            session.store,
            graph,
            events,
            Options(jobs=args.jobs, keep_going=args.keep_going, sandbox=not args.no_sandbox),
            own_rules=session.rule_files,
            write_receipt=session.write_receipt(graph, identity),
            known=known,
            tick=progress.tick,
            warn=progress.warn,
        )
    finally:
        progress.close()
    built.errors += [file.error for file in files if file.error is not None]
    return built


def report(graph: ActionGraph, built: Built, began: float, places: Sequence[str] | None = None) -> int:
    """Print errors and the summary; the exit code. places: of results, where the graph is a part only."""
    from mxt.cli.terminal import paint, print_error
    from mxt.words import duration, plural

    for error in built.errors:
        print_error(error)
    counts = built.outcome.counts
    total = sum(counts.values())
    words = ", ".join(f"{counts[s]} {s}" for s in _ORDER if counts.get(s))
    wall = duration(time.monotonic() - began)
    if built.outcome.interrupted:
        print(f"interrupted: {words} in {wall}", file=sys.stderr)
        print(
            "  hint: finished actions are kept, unfinished ones resume: run the same command again",
            file=sys.stderr,
        )
        return EXIT_INTERRUPTED
    if built.errors:
        words = words or "nothing was run"
        print(f"{paint('failed', 'red', sys.stderr)}: {words} in {wall}", file=sys.stderr)
        return EXIT_BUILD
    for place in result_places(graph) if places is None else places:
        print(f"  {place}")
    state = "up to date" if set(counts) <= {"cached"} else "built"
    detail = f"{plural(total, 'action')}: {words}" if words else "nothing to run"
    print(f"{state}: {detail} in {wall}")
    return EXIT_OK


def result_places(graph: ActionGraph, limit: int = 10) -> list[str]:
    """Where the requested targets' results lie, for people."""
    from mxt.execution.build import out_place

    places = []
    for label in graph.requested:
        target = graph.targets[label]
        if target.members and target.receipt:
            places += [f"{out_place(label)}/{name}" for name in ("receipt.dsse.json", "report.html")]
        elif target.actions or target.members:
            places.append(out_place(label))
        elif target.rule == "filegroup":
            made = (d for d in target.dependencies if d in graph.targets and graph.targets[d].actions)
            places += [out_place(d) for d in made]
    return places if len(places) <= limit else [*places[:limit], f"and {len(places) - limit} more"]


_ORDER = ("executed", "remote", "cached", "failed", "skipped", "interrupted")
