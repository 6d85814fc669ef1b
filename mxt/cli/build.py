"""mxt build: bring targets up to date."""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mxt.cli.options import add_building, add_labels, add_workspace
from mxt.cli.session import Session
from mxt.errors import EXIT_BUILD, EXIT_INTERRUPTED, EXIT_OK, GraphError

if TYPE_CHECKING:
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
"""


def add_arguments(parser: ArgumentParser) -> None:
    add_labels(parser)
    parser.add_argument("-n", "--dry-run", action="store_true", help="show what would run; run nothing")
    add_building(parser)
    add_workspace(parser)


def run(args: Namespace) -> int:
    began = time.monotonic()
    session = Session(args)
    shortcut = Shortcut(session, args)
    summary = shortcut.nothing_to_do()
    if summary is not None:
        return report_null(summary, began)
    session.make_folders()
    labels = session.resolve(args.labels)
    graph = session.analyse(labels)
    if args.dry_run:
        from mxt.cli.dry_run import show_plan

        return show_plan(session, graph)
    built = execute(session, graph, args)
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


def execute(session: Session, graph: ActionGraph, args: Namespace, *, effects: bool = False) -> Built:
    """Run the graph with the options of the command line; shows progress on standard error.

    effects: whether effects may be carried out; raises GraphError where one would be and may not.
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
    events.listen(Recorder(session.store.layout.state, identity))
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
            tick=progress.tick,
            warn=progress.warn,
        )
    finally:
        progress.close()
    built.errors += [file.error for file in files if file.error is not None]
    return built


def report(graph: ActionGraph, built: Built, began: float) -> int:
    """Print errors and the summary; the exit code."""
    from mxt.cli.terminal import duration, paint, plural, print_error

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
    for place in result_places(graph):
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


def report_null(summary: dict[str, Any], began: float) -> int:
    """The one line of a build that had nothing to do."""
    from mxt.cli.terminal import duration, plural

    wall = duration(time.monotonic() - began)
    print(f"up to date: {plural(int(summary['actions']), 'action')} in {wall}")
    return EXIT_OK


class Shortcut:
    """Remembers a successful build of these labels, and recognises that nothing changed since."""

    def __init__(self, session: Session, args: Namespace) -> None:
        self._session = session
        self._args = args
        self._plain = not (args.dry_run or args.events or args.profile or args.verbose)
        self._engine = ""

    def _file(self) -> Path:
        import hashlib
        import os

        where = os.path.relpath(os.getcwd(), self._session.root)
        # whose rules are trusted is written in the user's configuration
        user = [os.environ.get(name, "") for name in ("HOME", "XDG_CONFIG_HOME")]
        request = "\0".join([str(self._session.root), where, *user, *self._args.labels])
        name = hashlib.sha1(request.encode("utf-8", "surrogateescape"), usedforsecurity=False).hexdigest()
        return Path(self._session.workspace.store, "state", "snapshots", f"{name}.json")

    def nothing_to_do(self) -> dict[str, Any] | None:
        if not self._plain:
            return None
        from mxt.graph.snapshot import engine_identity, unchanged

        self._engine = engine_identity()
        return unchanged(self._file(), str(self._session.root), self._engine)

    def remember(self, graph: ActionGraph, built: Built) -> None:
        import os

        from mxt.graph.snapshot import UNSURE, Snapshot, engine_identity, write
        from mxt.loading.reads import stat_of
        from mxt.pages.report_file import report_beside

        root = str(self._session.root)
        paths: dict[str, Any] = {**graph.read, **self._session.looked_at()}
        for path, stat in built.looked_at.items():
            # looked at twice, with an edit between: no stat will do, so the next build looks properly
            paths[path] = stat if paths.setdefault(path, stat) == stat else UNSURE
        for place in built.materialised:
            for folder, _, names in os.walk(place):
                for name in (".", *names):
                    full = os.path.normpath(os.path.join(folder, name))
                    relative = os.path.relpath(full, root)
                    paths[full if relative.startswith("..") else relative] = stat_of(full)
        for receipt in built.receipts:
            for path in (receipt, report_beside(receipt)):
                paths[path] = stat_of(os.path.join(root, path))
        engine = self._engine or engine_identity()
        write(self._file(), engine, Snapshot(paths, built.links, {"actions": len(graph.actions)}))
