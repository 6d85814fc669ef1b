"""mxt plan: show what was decided and why, compare two plans, pin one into the workspace."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mxt.cli.options import add_workspace
from mxt.errors import EXIT_OK, GraphError, UsageError

if TYPE_CHECKING:
    from mxt.action.action import ActionId
    from mxt.cli.plan_found import FoundPlan
    from mxt.cli.session import Session
    from mxt.graph.graph import ActionGraph

EXAMPLES = """
examples:
  mxt plan show //recipes:x              what was decided, from which figures
  mxt plan diff //recipes:x //recipes:y  two recipes, decision by decision
  mxt plan diff last~1 last              two builds
  mxt plan diff old/receipt.dsse.json //recipes:x
  mxt plan pin //recipes:x               write recipes/x.plan.json; commit it
  mxt plan pin //recipes:x --from FILE   a colleague's plan, or a receipt's
  mxt plan pin //recipes:x --unpin       let the probe decide again

A PLAN is a label, a plan's or receipt's file (.json), or a build: 'last', 'last~1', the beginning of its
identity; BUILD@LABEL where a build used several. 'diff' exits with 1 where decisions differ.

A pinned plan is a declared input in the probe's place: everyone who builds with it, on whatever machine,
builds under the same decisions and gets the same keys.
"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "what",
        choices=["show", "diff", "pin"],
        help="show: decisions and figures; diff: two plans; pin: write the plan beside the recipe",
    )
    parser.add_argument("plans", nargs="+", metavar="PLAN", help="a recipe's label, a file or a build")
    parser.add_argument("--json", action="store_true", help="show, diff: for programs")
    parser.add_argument(
        "--from", dest="source", metavar="PLAN", help="pin: another plan than the one that was made here"
    )
    parser.add_argument("--unpin", action="store_true", help="pin: delete the pinned plan")
    add_workspace(parser)


def run(args: Namespace) -> int:
    count = 2 if args.what == "diff" else 1
    if len(args.plans) != count:
        wanted = "two plans" if count == 2 else "one plan"
        raise UsageError(f"mxt plan {args.what} takes {wanted}, not {len(args.plans)}")
    if args.what != "pin" and (args.source or args.unpin):
        raise UsageError("--from and --unpin belong to 'mxt plan pin'")
    if args.what == "pin" and args.json:
        raise UsageError("--json belongs to 'mxt plan show' and 'mxt plan diff'")
    if args.source and args.unpin:
        raise UsageError("--from pins a plan and --unpin deletes it: give one of them")
    from mxt.cli.session import Session

    session = Session(args)
    if args.what == "show":
        return _show(session, args)
    if args.what == "diff":
        return _diff(session, args)
    return _unpin(session, args.plans[0]) if args.unpin else _pin(session, args)


def _show(session: Session, args: Namespace) -> int:
    from mxt.cli.cells import columns_of
    from mxt.cli.plan_found import find_plan
    from mxt.cli.plan_text import show

    plan = find_plan(session, args.plans[0])
    if args.json:
        print(json.dumps(_form(plan), indent=2, sort_keys=True))
    else:
        print("\n".join(show(plan, columns_of(sys.stdout, 120))))
    return EXIT_OK


def _form(plan: FoundPlan) -> dict[str, Any]:
    from mxt.store.digest import hash_bytes

    run = plan.run and {"started": plan.run.started, "wall_s": plan.run.wall_s, "machine": plan.run.machine}
    return {
        "name": plan.name,
        "origin": plan.origin,
        "place": plan.place or None,
        "digest": str(hash_bytes(plan.data)),
        "key": plan.key or None,
        "stale": plan.stale or None,
        "plan": plan.form,
        "run": run,
        "evidence": plan.evidence,
    }


def _diff(session: Session, args: Namespace) -> int:
    from mxt.cli.plan_found import find_plan
    from mxt.cli.plan_text import ABSENT, differences, value

    first, second = args.plans
    a, b = find_plan(session, first, second), find_plan(session, second, first)
    found = differences(a.form, b.form)
    decided = [d for d in found if d[0].startswith("decisions.")]
    if args.json:
        rows = [
            {"field": name, **{k: v for k, v in (("a", x), ("b", y)) if v is not ABSENT}}
            for name, x, y in found
        ]
        print(json.dumps({"a": _form(a), "b": _form(b), "differences": rows}, indent=2, sort_keys=True))
        return 1 if decided else EXIT_OK
    from mxt.cli.plan_text import origin

    print(f"a: {a.name}  {origin(a)}\nb: {b.name}  {origin(b)}")
    if a.data == b.data:
        print("the same plan, byte for byte")
        return EXIT_OK
    wide = max((len(n) for n, _, _ in found), default=0)
    for name, x, y in found:
        print(f"  {name:<{wide}}  {value(x)} -> {value(y)}")
    same = sum(a.decisions.get(n) == b.decisions.get(n) for n in {*a.decisions, *b.decisions})
    if not decided:
        print("the same decisions" + (", made for something else" if found else ""))
    else:
        print(f"{len(decided)} of {len(decided) + same} decisions differ")
    return 1 if decided else EXIT_OK


# ---- pinning --------------------------------------------------------------------------------------


def _pin(session: Session, args: Namespace) -> int:
    from mxt.cli.plan_found import analyse, find_plan, parse_plan, plans_below

    _must_be_label(args.plans[0])
    label, graph = analyse(session, args.plans[0])
    makers, pinned = plans_below(graph)
    if pinned and not makers:
        place = min(pinned)
        if args.source and find_plan(session, args.source).data == (session.root / place).read_bytes():
            print(f"pinned already: {place}")
            return EXIT_OK
        raise GraphError(
            "a plan is pinned already", where=place, hint=f"let go of it first: mxt plan pin {label} --unpin"
        )
    if len(makers) != 1:
        names = ", ".join(map(str, makers[:4]))
        raise GraphError(
            f"'{label}' has {f'{len(makers)} probes: {names}' if makers else 'no probe'}",
            hint="name one of them" if makers else "pin the plan of a recipe that is probed",
        )
    maker = makers[0]
    if args.source:
        plan = find_plan(session, args.source)
        _must_fit(session, graph, maker, plan, args.source)
    else:
        plan = _fresh(session, graph, maker)
    place = _place(maker)
    parse_plan(plan.data, plan.name)
    # the very bytes that the probe made: pinning alone must make nothing again
    _write(session.root / place, place, plan.data)
    _must_be_read(args, label, place, session.root / place)
    print(f"pinned {place}: {_in_words(plan)}")
    return EXIT_OK


def _must_be_label(text: str, option: str = "") -> None:
    """Raises UsageError for a build or a file where the recipe to pin for must be named."""
    import re

    kind = "build" if re.fullmatch(r"last(~\d+)?(@.*)?|[0-9a-f]{8,16}(@.*)?", text) else ""
    kind = "file" if text.endswith(".json") else kind
    if kind:
        raise UsageError(
            f"'{text}' is a {kind}, and a plan is pinned for a recipe",
            hint=f"name the recipe: mxt plan pin LABEL{option or f' --from {text}'}",
        )


def _fresh(session: Session, graph: ActionGraph, maker: ActionId) -> FoundPlan:
    """What the probe chose for the recipe as it is now. Raises GraphError for a plan that is out of date."""
    from mxt.cli.plan_found import of_maker

    plan = of_maker(session, graph, maker)
    if plan.stale:
        raise GraphError(
            f"the plan that '{maker}' made last is stale: {plan.stale}", hint=f"mxt build {maker.label}"
        )
    return plan


def _must_fit(session: Session, graph: ActionGraph, maker: ActionId, plan: FoundPlan, source: str) -> None:
    """Raises GraphError where a plan from elsewhere was made for something else.

    What it was made for is held against the declared platform, and where this store has the probe's own
    plan against that; what neither shows the stage that reads the plan refuses by itself.
    """
    from mxt.action.canonical import canonical
    from mxt.cli.plan_found import of_maker
    from mxt.cli.plan_text import differences, value

    platform = graph.actions[maker].platform
    wanted: dict[str, Any] = {}
    if platform is not None and "platform" in plan.form:
        wanted["platform"] = canonical(graph.platforms[platform])
    try:
        own = of_maker(session, graph, maker)
    except GraphError:
        own = None
    if own is not None and not own.stale:
        if set(own.decisions) != set(plan.decisions):
            raise GraphError(
                f"it decides {', '.join(sorted(plan.decisions))}; needed: {', '.join(sorted(own.decisions))}",
                where=source,
            )
        wanted |= {k: v for k, v in own.form.items() if k != "decisions"}
    there = {k: plan.form.get(k) for k in wanted}
    apart = [f"{n}: plan {value(x)}, here {value(y)}" for n, x, y in differences(there, wanted)]
    if apart:
        shown = "; ".join(apart[:6]) + ("; ..." if len(apart) > 6 else "")
        raise GraphError(
            f"this plan was made for something else: {shown}",
            where=source,
            hint=f"measure here: mxt build {maker.label}",
        )


def _must_be_read(args: Namespace, label: str, place: str, path: Path) -> None:
    """Raises GraphError, and takes the file away again, where no action would read it."""
    from mxt.cli.plan_found import plans_below

    try:
        from mxt.cli.session import Session

        session = Session(args)
        taken = place in plans_below(session.analyse([label]))[1]
        session.loader.close()
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    if not taken:
        path.unlink(missing_ok=True)
        raise GraphError(
            f"nothing would read '{place}'",
            where=label,
            hint="the macro that declares this target takes no pinned plan; finetune() does",
        )


def _unpin(session: Session, text: str) -> int:
    from mxt.cli.plan_found import analyse, plans_below

    _must_be_label(text, " --unpin")
    label, graph = analyse(session, text)
    makers, pinned = plans_below(graph)
    if len(pinned) != 1:
        raise GraphError(
            f"'{label}' has {'no pinned plan' if not pinned else f'{len(pinned)} pinned plans'}",
            hint=f"its plan is made by {makers[0]}" if makers else "name one recipe",
        )
    place = pinned.pop()
    (session.root / place).unlink()
    print(f"unpinned {place}: the probe decides again")
    return EXIT_OK


def _place(maker: ActionId) -> str:
    """Where a maker's plan is pinned, relative to the root: p/x.plan.json for //p:x.probe."""
    from mxt.cli.plan_found import MAKER, SUFFIX

    package, _, name = maker.label.rpartition(":")
    if maker.name or not name.endswith(MAKER) or not package.startswith("//"):
        raise GraphError(
            f"'{maker}' makes a plan that cannot be pinned", hint=f"a probe is a target called NAME{MAKER}"
        )
    return f"{package[2:]}/{name.removesuffix(MAKER)}{SUFFIX}".lstrip("/")


def _write(path: Path, place: str, data: bytes) -> None:
    from mxt.store.replace_file import replace_file

    try:
        replace_file(path, data)
    except OSError as error:
        raise GraphError(f"cannot write the plan: {error.strerror}", where=place) from None


def _in_words(plan: FoundPlan) -> str:
    from mxt.cli.plan_text import value

    return ", ".join(f"{name} {value(v)}" for name, v in sorted(plan.decisions.items()))
