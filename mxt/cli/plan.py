"""mxt plan: pin the plan that a probe made into the workspace, where it replaces the probe."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from mxt.cli.options import add_workspace
from mxt.cli.session import Session
from mxt.errors import EXIT_OK, GraphError

EXAMPLES = """
examples:
  mxt plan pin //recipes:tiny_sft_lora    write the plan; commit it
  rm recipes/tiny_sft_lora.plan.json      let the probe decide again

A pinned plan is a declared input: everyone who builds with it trains under the same decisions.
"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("what", choices=["pin"], help="pin: write the newest plan beside the recipe")
    parser.add_argument("label", metavar="LABEL", help="a recipe's target, or its .probe")
    add_workspace(parser)


def run(args: Namespace) -> int:
    session = Session(args)
    (label,) = session.resolve([args.label])
    package, _, name = label.rpartition(":")
    recipe = name.removesuffix(".probe")
    probe = f"{package}:{recipe}.probe"
    place = f"{package[2:]}/{recipe}.plan.json".lstrip("/")
    path = session.root / place
    if recipe + ".probe" not in session.package(package[2:]).targets:
        if path.exists():
            raise GraphError(
                "a plan is pinned already", where=place, hint="delete the file to let the probe decide again"
            )
        raise GraphError(f"'{package}:{recipe}' has no probe", hint="pin the plan of a recipe that trains")
    key = session.store.history.previous(probe, "")
    found = session.store.actions.lookup(key) if key else None
    if found is None or "plan" not in found.outputs:
        raise GraphError(f"'{probe}' has made no plan yet", hint=f"build it first: mxt build {probe}")
    # the very bytes that the probe made: pinning alone must not train again
    data = session.store.cas.read(found.outputs["plan"].digest)
    aside = path.with_name(f".{path.name}.part")
    aside.write_bytes(data)
    aside.replace(path)
    print(f"pinned {place}")
    return EXIT_OK
