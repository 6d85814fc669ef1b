"""mxt doctor: what this machine can run, what is missing, how to get it."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING

from mxt.cli.options import add_labels, add_workspace
from mxt.cli.terminal import paint
from mxt.errors import EXIT_BUILD, EXIT_OK, MxtError, UsageError

if TYPE_CHECKING:
    from mxt.doctor.finding import Finding
    from mxt.loading.workspace import Workspace

EXAMPLES = """
examples:
  mxt doctor                   this machine, and the workspace if there is one
  mxt doctor //recipes:demo    also what the target needs, before a build starts
  mxt doctor --deep            read every installed file, try the libraries
  mxt doctor --json | jq '.findings[] | select(.status != "ok")'

Exit code 1 when something would make builds fail.
"""

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


def add_arguments(parser: ArgumentParser) -> None:
    add_labels(parser, required=False)
    parser.add_argument("--deep", action="store_true", help="read every installed file, try the libraries")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_workspace(parser)


def run(args: Namespace) -> int:
    found = []
    for finding in _look(args):
        found.append(finding)
        if not args.json:
            print(render(finding, _width()), flush=True)
    failed = sum(f.status == "fail" for f in found)
    warned = sum(f.status == "warn" for f in found)
    if args.json:
        rows = [f._asdict() for f in found]
        print(json.dumps({"version": 1, "ok": not failed, "findings": rows}, indent=1))
    elif failed or warned:
        print(f"\n{len(found)} things looked at: {failed} to mend, {warned} to know about")
    else:
        print(f"\n{len(found)} things looked at: all well")
    return EXIT_BUILD if failed else EXIT_OK


def render(finding: Finding, width: int) -> str:
    """The finding as lines of at most `width` columns, as far as its words allow."""
    status = paint(f"{finding.status:<4}", _COLOURS[finding.status], sys.stdout)
    area = f"{finding.area:<11}"
    indent = " " * 19
    room = max(20, width - len(indent))

    def wrapped(text: str) -> list[str]:
        return textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False) or [""]

    lines = wrapped(finding.what)
    if len(finding.area) > 11:  # a label stands on a line of its own
        out = [f"{status}  {finding.area}", *(indent + line for line in lines)]
    else:
        out = [f"{status}  {area}  {lines[0]}", *(indent + line for line in lines[1:])]
    if finding.mend:
        parts = [line for text in finding.mend.split("\n") for line in wrapped(text.strip())]
        out += [
            f"{indent}{paint('->', 'cyan', sys.stdout)} {parts[0]}",
            *(f"{indent}   {line}" for line in parts[1:]),
        ]
    return "\n".join(out)


def _look(args: Namespace) -> Iterator[Finding]:
    from mxt.doctor.devices import device_findings, has_devices
    from mxt.doctor.finding import WARN, Finding
    from mxt.doctor.machine import machine_findings
    from mxt.doctor.network import network_findings
    from mxt.doctor.software import software_findings
    from mxt.doctor.store import key_finding, store_findings, trust_finding
    from mxt.loading.rule_modules import builtin_module

    workspace = _workspace(args)
    root = workspace.root if workspace is not None else None
    yield from software_findings(root, deep=args.deep)
    yield from machine_findings()
    yield from device_findings()
    # what the stages need of libraries and secrets, only their rules know
    known = builtin_module("_doctor").findings(devices=has_devices(), deep=args.deep)
    yield from (Finding(*row) for row in known)
    yield from network_findings()
    yield key_finding(workspace)
    if workspace is None:
        what = "not in a workspace: its disk, its store and its rules were not looked at"
        yield Finding("workspace", WARN, what, "change into one, or make one: mxt init DIR")
        return
    yield from store_findings(workspace)
    yield trust_finding(workspace)
    if args.labels:
        yield from _targets(args)


def _workspace(args: Namespace) -> Workspace | None:
    """None where there is none; raises UsageError where one was named, or is needed for labels."""
    import os

    from mxt.loading.workspace import find_workspace

    try:
        return find_workspace(root=args.workspace, store=args.store)
    except UsageError:
        if args.labels or args.workspace is not None or os.environ.get("MXT_WORKSPACE") or args.store:
            raise
        return None


def _targets(args: Namespace) -> Iterator[Finding]:
    from mxt.cli.session import Session
    from mxt.doctor.targets import broken, target_findings
    from mxt.loading.pattern import parse_patterns

    session = Session(args)
    parse_patterns(args.labels, session.workspace)  # a malformed one is no fact about this machine
    session.make_folders()
    try:
        graph = session.analyse(session.resolve(args.labels))
        runner = session.runner(graph)
        yield from target_findings(" ".join(args.labels), session.root, graph, runner)
    except MxtError as error:
        yield broken(error)
    finally:
        session.store.close()


def _width() -> int:
    return min(120, max(60, shutil.get_terminal_size((100, 24)).columns))
