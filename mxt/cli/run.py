"""mxt run: build a target, then carry out its effect; or run the program it makes."""

from __future__ import annotations

import os
import sys
import time
from argparse import ArgumentParser, Namespace

from mxt.cli.execute import execute, report
from mxt.cli.options import add_building, add_workspace
from mxt.errors import EXIT_OK, GraphError

EXAMPLES = """
examples:
  mxt run //tools:convert -- --help     build a program and run it here
  mxt run //recipes:x.publish           carry out an effect, once for each input

A target is run if it makes exactly one executable file, or if its rule says EFFECT = True. An
effect may reach the network, leaves a signed record, and is not repeated while nothing changed.
"""


# what stands after "--" is the program's, in args.arguments
TAKES_ARGUMENTS = True


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("label", metavar="LABEL", help="one target")
    add_building(parser)
    add_workspace(parser)


def run(args: Namespace) -> int:  # noqa: RET503 - execv does not return
    began = time.monotonic()
    from mxt.cli.session import Session

    session = Session(args)
    session.make_folders()
    graph = session.analyse(session.resolve([args.label], keep_manual=True))
    if len(graph.requested) != 1:
        raise GraphError(f"'{args.label}' means {len(graph.requested)} targets", hint="name one target")
    target = graph.targets[graph.requested[0]]
    if not target.actions:
        raise GraphError(
            f"'{target.label}' has nothing to run", hint="name a stage, or a target that makes a program"
        )
    if target.effect and args.arguments:
        raise GraphError(f"'{target.label}' is an effect and takes no arguments")
    built = execute(session, graph, args, effects=True)
    code = report(graph, built, began)
    if code != EXIT_OK or target.effect:
        return code
    programs = []
    for identity in target.actions:
        realisation = built.results[identity].realisation
        assert realisation is not None
        out = session.store.outputs.materialise(realisation)
        programs += [out / o.path for o in realisation.outputs.values() if o.executable]
    if len(programs) != 1:
        raise GraphError(
            f"'{target.label}' makes {len(programs)} executable files, to run it must make one",
            hint="genrule(..., executable = True)",
        )
    sys.stdout.flush()
    os.execv(programs[0], [str(programs[0]), *args.arguments])  # noqa: S606 - running it is what was asked for
