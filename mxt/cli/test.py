"""mxt test: build test targets and report their verdicts."""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from mxt.cli.execute import execute, report
from mxt.cli.options import add_building, add_labels, add_watch, add_workspace
from mxt.cli.terminal import paint
from mxt.cli.verdict import verdict
from mxt.errors import EXIT_BUILD, EXIT_OK, EXIT_TESTS, GraphError
from mxt.words import plural

if TYPE_CHECKING:
    from mxt.cli.session import Session
    from mxt.cli.watch import Seen

EXAMPLES = """
examples:
  mxt test //recipes:tiny_sft_lora.gate    one gate
  mxt test //recipes:tiny_sft_lora         all tests of a bundle
  mxt test //...                           all tests of the workspace
  mxt test //... --watch                   again whenever what they read changes

A test's verdict is cached like any result: it runs again only when something it reads changed.
Exit code 3 when a verdict is negative, 1 when a test could not be built.
"""


def add_arguments(parser: ArgumentParser) -> None:
    add_labels(parser)
    add_building(parser)
    add_watch(parser)
    add_workspace(parser)


def run(args: Namespace) -> int:
    if args.watch:
        from mxt.cli.watch import watch

        return watch(args, _test)
    return _test(args, None)


def _test(args: Namespace, seen: Seen | None) -> int:
    """Build and report once. seen: takes what a watch must know."""
    began = time.monotonic()
    from mxt.cli.session import Session

    session = Session(args)
    if seen is not None:
        seen.session = session
    session.make_folders()
    tests = find_tests(session, session.resolve(args.labels))
    # analysed anew, so that only the tests and what they need are built
    graph = session.analyse(tests)
    built = execute(session, graph, args)
    if seen is not None:
        seen.graph, seen.built = graph, built
    code = report(graph, built, began)
    verdicts = [(label, verdict(session, graph, built, label)) for label in tests]
    for label, found in verdicts:
        if found is None:
            print(f"{paint('NO RESULT', 'yellow', sys.stdout)}  {label}")
        else:
            word = (
                paint("PASSED", "green", sys.stdout)
                if found["passed"]
                else paint("FAILED", "red", sys.stdout)
            )
            print(f"{word}  {label}  {found.get('summary', '')}")
    failed = sum(1 for _, found in verdicts if found is not None and not found["passed"])
    passed = sum(1 for _, found in verdicts if found is not None and found["passed"])
    print(f"{plural(len(tests), 'test')}: {passed} passed, {failed} failed")
    if code == EXIT_OK and passed + failed < len(tests):
        return EXIT_BUILD  # a test without a verdict has not passed
    return EXIT_TESTS if code == EXIT_OK and failed else code


def find_tests(session: Session, labels: list[str]) -> list[str]:
    """The test targets among labels, and in the bundles among them. Raises GraphError if there is none."""
    graph = session.analyse(labels)
    found = [t.label for t in graph.wanted() if t.test]
    if not found:
        raise GraphError(
            f"no tests among {', '.join(labels[:3])}{', ...' if len(labels) > 3 else ''}",
            hint="a test is a target of a rule with TEST = True, such as gate",
        )
    return found
