"""mxt explain across two builds or two receipts: what changed by itself, and what only followed."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mxt.action.parting import Difference, Step, part
from mxt.cli.cells import columns_of, shorten
from mxt.cli.changes import change_lines
from mxt.cli.terminal import paint, warn
from mxt.errors import EXIT_OK, UsageError
from mxt.words import plural

if TYPE_CHECKING:
    from mxt.execution.build_record import BuildRecord, BuiltStep
    from mxt.receipt.receipt import Receipt
    from mxt.store.store import Store

RECEIPT = "receipt.dsse.json"
MAX_FOLLOWERS = 30


# ---- builds -------------------------------------------------------------------------------------


def explain_builds(args: Namespace) -> int:
    """Compare two recorded builds; labels, if any are given, choose targets and all they are made from."""
    from mxt.cli.session import Session
    from mxt.execution.build_record import find_record

    session = Session(args)
    state = session.workspace.store / "state"
    old, new = (find_record(state, text) for text in args.between)
    wanted = None
    if args.labels:
        graph = session.analyse(session.resolve(args.labels, keep_manual=True))
        wanted = {str(identity) for identity in graph.actions}
    before, after = (
        [step for step in _steps(session.store, record.steps) if wanted is None or step.name in wanted]
        for record in (old, new)
    )
    found = part(before, after)
    both = len({step.name for step in before} & {step.name for step in after})
    if args.json:
        _print_json(
            {"old": _build_form(old), "new": _build_form(new), "compared": both, **_differences_form(found)}
        )
        return EXIT_OK
    for which, record in (("older", old), ("newer", new)):
        print(f"{which}  {_build_line(record)}")
    print()
    if not both:
        print("the two builds have no action in common")
        return EXIT_OK
    _print(found, both, "the keys of all {} are the same in both builds", removed="only in the older build")
    return EXIT_OK


def _steps(store: Store, steps: Sequence[BuiltStep]) -> Iterator[Step]:
    """Steps with forms and outputs as far as the store has them; inputs are traced by their digests."""
    import json

    from mxt.errors import StoreError

    names = [f"{step.label}[{step.action}]" if step.action else step.label for step in steps]
    outputs: list[dict[str, str] | None] = []
    makers: dict[str, set[str]] = {}
    for name, step in zip(names, steps, strict=True):
        found = store.actions.lookup(step.key) if step.key else None
        made = None if found is None else {n: f"{o.kind} {o.digest}" for n, o in found.outputs.items()}
        outputs.append(made)
        for output in (made or {}).values():
            makers.setdefault(output.partition(" ")[2], set()).add(name)
    for name, step, made in zip(names, steps, outputs, strict=True):
        form = None
        if step.key:
            try:
                form = json.loads(store.cas.read(step.key))
            except (StoreError, ValueError):
                form = None
        inputs = {} if form is None else form["inputs"]
        traced = {
            given: frozenset(makers[one["digest"]] - {name})
            for given, one in inputs.items()
            if one["digest"] in makers
        }
        yield Step(name, step.key, form, made, traced, step.status)


def _build_line(record: BuildRecord) -> str:
    from mxt.cli.log_builds import local_time, outcome

    requested = " ".join(record.requested)
    line = f"{record.identity[:8]}  {local_time(record.began)}  {outcome(record)}  {requested}"
    return shorten(line, _width() - len("older  "))


def _build_form(record: BuildRecord) -> dict[str, Any]:
    return {"build": record.identity, "began": record.began, "success": record.success}


# ---- receipts -----------------------------------------------------------------------------------


def receipt_path(text: str) -> Path | None:
    """The file of a receipt that an argument names by itself or by its folder; None for a label."""
    if text.startswith(("//", ":", "@", "-")):
        return None
    path = Path(os.path.expanduser(text))
    if text.endswith(".json"):
        return path
    if (path / RECEIPT).is_file():
        return path / RECEIPT
    return None


def explain_receipts(paths: Sequence[Path], args: Namespace) -> int:
    """Compare two receipts. Says when a signature does not hold; everything else about trust is verify's."""
    from mxt.receipt.compare import steps_of
    from mxt.receipt.dsse import signature_holds
    from mxt.receipt.receipt import read_receipt

    receipts = [read_receipt(path) for path in paths]
    for path, receipt in zip(paths, receipts, strict=True):
        if not signature_holds(receipt.envelope, receipt.statement.public):
            warn(f"{path}: the signature does not hold; 'mxt verify' says more")
    old, new = receipts
    before, after = steps_of(old), steps_of(new)
    found = part(before, after)
    both = len({step.name for step in before} & {step.name for step in after})
    if args.json:
        forms = [_receipt_form(path, one) for path, one in zip(paths, receipts, strict=True)]
        _print_json({"old": forms[0], "new": forms[1], "compared": both, **_differences_form(found)})
        return EXIT_OK
    for which, path, receipt in zip(("first", "second"), paths, receipts, strict=True):
        print("\n".join(_receipt_lines(which, path, receipt)))
    print()
    if old.digest == new.digest:
        print("equal: this is the same receipt")
        return EXIT_OK
    same = "equal: {} with the same keys gave the same bytes"
    _print(found, both, same, removed="only in the first receipt", parted="they part at {}")
    return EXIT_OK


def _receipt_lines(which: str, path: Path, receipt: Receipt) -> Iterator[str]:
    from mxt.receipt.compare import machines_of
    from mxt.store.signing import keyid_of

    statement = receipt.statement
    width = _width()
    yield shorten(f"{which:<7} {statement.target}  {path}", width)
    machines = ", ".join(machines_of(receipt)) or "of a machine not named"
    yield shorten(f"{'':<7} {statement.finished}  by {keyid_of(statement.public)[:12]}  {machines}", width)


def _receipt_form(path: Path, receipt: Receipt) -> dict[str, Any]:
    from mxt.receipt.compare import machines_of
    from mxt.store.signing import keyid_of

    return {
        "path": str(path),
        "receipt": receipt.digest,
        "target": receipt.statement.target,
        "finished": receipt.statement.finished,
        "operator": keyid_of(receipt.statement.public),
        "machines": machines_of(receipt),
    }


# ---- both ---------------------------------------------------------------------------------------


def _print(found: Sequence[Difference], both: int, same: str, *, removed: str, parted: str = "") -> None:
    if not found:
        print(same.format(f"all {plural(both, 'action')}" if "equal" in same else plural(both, "action")))
        return
    first = next((one for one in found if one.verdict != "follows"), found[0])
    if parted:
        print(parted.format(first.name))
    width = _width()
    heads = {
        "changed": "changed",
        "bytes": "made other bytes under the same key",
        "added": removed.replace("older", "newer").replace("first", "second"),
        "removed": removed,
        "unknown": "cannot be compared",
    }
    followers = [one for one in found if one.verdict == "follows"]
    for one in found:
        if one.verdict == "follows":
            continue
        head = f"{one.name} {heads[one.verdict]}"
        print(paint(head, "bold", sys.stdout) if one is first else head)
        for line in _detail(one, width):
            print(line)
    if followers:
        differs, reads = ("differs", "it reads") if len(followers) == 1 else ("differ", "they read")
        print(f"{plural(len(followers), 'action')} {differs} only because of what {reads}:")
    for one in followers[:MAX_FOLLOWERS]:
        makers = ", ".join(dict.fromkeys(one.follows.values()))
        print(paint(shorten(f"  {one.name} reads {makers}", width), "dim", sys.stdout))
    if len(followers) > MAX_FOLLOWERS:
        print(f"  and {len(followers) - MAX_FOLLOWERS} more; --json lists all")
    print(_total(found, both, heads))


def _total(found: Sequence[Difference], both: int, heads: Mapping[str, str]) -> str:
    """How many of the actions that both have differ; apart from them what has nothing to be held against."""
    counts = Counter(one.verdict for one in found)
    own, following = counts["changed"] + counts["bytes"], counts["follows"]
    parts = []
    if own:
        parts.append(f"{own} by {'itself' if own == 1 else 'themselves'}")
    if following:
        parts.append(f"{following} only through what {'it reads' if following == 1 else 'they read'}")
    differ = own + following
    common = plural(both, "action")
    whole = []
    if differ:
        whole.append(f"{differ} of {common} {'differs' if differ == 1 else 'differ'}: {', '.join(parts)}")
    elif counts["unknown"] < both:
        whole.append(f"none of {common} is known to differ")
    whole += [f"{counts[v]} {heads[v]}" for v in ("unknown", "added", "removed") if counts[v]]
    return "; ".join(whole)


def _detail(one: Difference, width: int) -> Iterator[str]:
    if one.why:
        yield f"  {one.why}"
    for change in one.causes:
        yield from change_lines(change, width)
    for name, maker in one.follows.items():
        yield shorten(f"  {name}: follows from {maker}", width)
    if one.circumstances:
        yield "  it ran differently:"
    for change in one.circumstances:
        yield from change_lines(change, width, "    ")


def _differences_form(found: Sequence[Difference]) -> dict[str, Any]:
    return {
        "v": 1,
        "equal": not found,
        "differences": [
            {
                "name": one.name,
                "verdict": one.verdict,
                "old_key": one.old.key if one.old else None,
                "new_key": one.new.key if one.new else None,
                "changes": [
                    {**change._asdict(), "follows": one.follows.get(change.field)} for change in one.changes
                ],
                "circumstances": [change._asdict() for change in one.circumstances],
                "why": one.why,
            }
            for one in found
        ],
    }


def refuse_mixture(args: Namespace, paths: Sequence[Path | None]) -> None:
    """Raises UsageError unless exactly two receipts, and nothing else, were named."""
    if args.between:
        raise UsageError("--between compares builds, not receipts", hint="name the two receipts alone")
    if len(paths) != 2 or None in paths:
        raise UsageError(
            "two receipts are compared, with nothing beside them",
            hint="mxt explain OLD/receipt.dsse.json NEW/receipt.dsse.json",
        )


def _width() -> int:
    return max(60, min(columns_of(sys.stdout, 100), 160))


def _print_json(form: object) -> None:
    import json

    print(json.dumps(form, indent=2, ensure_ascii=False))
