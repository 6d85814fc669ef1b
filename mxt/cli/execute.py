"""Carrying out a graph with the options of the command line, and saying how it went."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from mxt.errors import EXIT_BUILD, EXIT_INTERRUPTED, EXIT_OK, GraphError

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from mxt.action.action import ActionId
    from mxt.cli.session import Session
    from mxt.execution.build import Built
    from mxt.graph.graph import ActionGraph


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
