"""mxt explain: why a target would run, or why it last did."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from datetime import UTC, datetime

from mxt.action.action import ActionId, SliceRef, SourceRef
from mxt.action.explain import Change
from mxt.cli.options import add_labels, add_workspace
from mxt.cli.session import Session
from mxt.cli.terminal import paint, plural
from mxt.errors import EXIT_OK
from mxt.execution.forecast import Forecast, forecast, last_change
from mxt.execution.runner import Runner

EXAMPLES = """
examples:
  mxt explain //recipes:tiny_sft_lora          what would run, and why
  mxt explain //recipes:tiny_sft_lora.train    one stage, or its last change
"""


def add_arguments(parser: ArgumentParser) -> None:
    add_labels(parser)
    add_workspace(parser)


def run(args: Namespace) -> int:
    import sys

    session = Session(args)
    session.make_folders()
    graph = session.analyse(session.resolve(args.labels))
    runner = session.runner(graph)
    plan = forecast(graph, runner)
    pending = [f for f in plan if f.status != "cached"]
    for item in pending:
        later = "" if item.status == "run" else " (after what it reads)"
        print(f"{paint(str(item.action.id), 'bold', sys.stdout)} would run{later}")
        _show(item)
    if pending:
        print(f"{len(pending)} of {plural(len(plan), 'action')} would run")
        return EXIT_OK
    shown = {identity for target in graph.wanted() for identity in target.actions}
    for item in plan:
        if item.action.id in shown:
            _show_last(item.action.id, runner)
    print(f"up to date: none of {plural(len(plan), 'action')} would run")
    return EXIT_OK


def _show(item: Forecast) -> None:
    sources = {i.name: i.ref.path for i in item.action.inputs if isinstance(i.ref, (SourceRef, SliceRef))}
    for change in item.changes:
        print(f"  {describe(change, sources)}")
    for name, maker in item.waits.items():
        print(f"  inputs.{name}: made again by {maker}, unless it makes the same bytes")
    if not item.changes and not item.waits:
        print("  never built here")


def _show_last(identity: ActionId, runner: Runner) -> None:
    last = last_change(runner, identity)
    if last is None:
        return
    when = (
        datetime.fromtimestamp(last[0], UTC)
        .astimezone()
        .replace(tzinfo=None)
        .isoformat(sep=" ", timespec="seconds")
    )
    print(f"{identity} last changed {when}")
    for change in last[1]:
        print(f"  {describe(change, {})}")


def describe(change: Change, sources: dict[str, str]) -> str:
    """One change in full; a source input is named by its path, digests are cut to 12 characters."""
    from mxt.cli.progress import short_change

    text = short_change(change._asdict())
    path = sources.get(change.field.removeprefix("inputs."))
    return f"{text}  ({path})" if path and path not in text else text
