"""mxt explain: why a target would run, or why it last did; what changed between builds or receipts."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mxt.cli.options import add_labels, add_workspace
from mxt.cli.terminal import paint
from mxt.errors import EXIT_OK, UsageError
from mxt.words import plural

if TYPE_CHECKING:
    from mxt.action.action import ActionId
    from mxt.action.explain import Change
    from mxt.execution.forecast import Forecast
    from mxt.execution.runner import Runner
    from mxt.graph.graph import ActionGraph

EXAMPLES = """
examples:
  mxt explain //recipes:tiny_sft_lora          what would run, and why
  mxt explain //recipes:tiny_sft_lora.train    one stage, or its last change
  mxt explain --between last~1 last            what changed between two builds
  mxt explain //recipes:tiny_sft_lora --between 3f9a 77c1    for one target
  mxt explain A/receipt.dsse.json B/receipt.dsse.json        where two part

'mxt log --builds' lists the builds: last is the newest, last~1 the one before, others go by their identity
or its beginning. What changed only because something that it reads changed is listed apart.
"""


def add_arguments(parser: ArgumentParser) -> None:
    add_labels(parser, required=False)
    parser.add_argument(
        "--between", nargs=2, metavar=("OLD", "NEW"), help="compare two builds: last~1, last, or an identity"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object, complete")
    add_workspace(parser)


def run(args: Namespace) -> int:
    import sys

    from mxt.cli.explain_between import explain_builds, explain_receipts, receipt_path, refuse_mixture

    paths = [receipt_path(text) for text in args.labels]
    if any(paths):
        refuse_mixture(args, paths)
        return explain_receipts([path for path in paths if path is not None], args)
    if args.between:
        return explain_builds(args)
    if not args.labels:
        raise UsageError("nothing to explain", hint="name a target, or two builds with --between")
    from mxt.cli.session import Session
    from mxt.execution.forecast import forecast

    session = Session(args)
    session.make_folders()
    labels = session.resolve(args.labels)
    graph = session.analyse(labels)
    runner = session.runner(graph)
    plan = forecast(graph, runner)
    if not plan:
        raise _nothing_made(labels[0], graph)
    if args.json:
        _print_json(plan)
        return EXIT_OK
    pending = [f for f in plan if f.status != "cached"]
    for item in pending:
        later = "" if item.status == "run" else " (after what it reads)"
        refusal = item.action.refusal
        verdict = f"would run{later}" if refusal is None else f"cannot run: {refusal.message}"
        if refusal is None and item.behind:
            verdict = f"cannot run: needs {item.behind}"
        print(f"{paint(str(item.action.id), 'bold', sys.stdout)} {verdict}")
        _show(item)
    if pending:
        refused = sum(item.refused or item.behind is not None for item in pending)
        cannot = f", {refused} cannot" if refused else ""
        print(f"{len(pending) - refused} of {plural(len(plan), 'action')} would run{cannot}")
        return EXIT_OK
    shown = {identity for target in graph.wanted() for identity in target.actions}
    for item in plan:
        if item.action.id in shown:
            _show_last(item.action.id, runner)
    print(f"up to date: none of {plural(len(plan), 'action')} would run")
    return EXIT_OK


def _nothing_made(label: str, graph: ActionGraph) -> UsageError:
    if label in graph.targets:
        return UsageError(f"'{label}' has no actions: there is nothing to explain")
    return UsageError(
        f"'{label}' is a file or folder of the workspace: no action makes it",
        hint=f"what reads it: mxt query 'rdeps(//..., {label}, 1)'",
    )


def _show(item: Forecast) -> None:
    from mxt.action.action import SliceRef, SourceRef

    sources = {i.name: i.ref.path for i in item.action.inputs if isinstance(i.ref, (SourceRef, SliceRef))}
    for change in item.changes:
        print(f"  {describe(change, sources)}")
    for name, maker in item.waits.items():
        print(f"  inputs.{name}: made again by {maker}, unless it makes the same bytes")
    if not item.changes and not item.waits:
        print("  never built here")


def _show_last(identity: ActionId, runner: Runner) -> None:
    from datetime import UTC, datetime

    from mxt.execution.forecast import last_change

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


def _print_json(plan: Sequence[Forecast]) -> None:
    import json

    actions = [
        {
            "label": item.action.id.label,
            "action": item.action.id.name,
            "status": item.status,
            "key": item.key,
            "changes": [change._asdict() for change in item.changes],
            "waits": {name: str(maker) for name, maker in item.waits.items()},
            "refusal": item.action.refusal._asdict() if item.action.refusal and item.refused else None,
        }
        for item in plan
    ]
    print(json.dumps({"v": 1, "actions": actions}, indent=2, ensure_ascii=False))


def describe(change: Change, sources: dict[str, str]) -> str:
    """One change in full; a source input is named by its path, digests are cut to 12 characters."""
    from mxt.cli.progress import short_change

    text = short_change(change._asdict())
    path = sources.get(change.field.removeprefix("inputs."))
    return f"{text}  ({path})" if path and path not in text else text
