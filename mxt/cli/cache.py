"""mxt cache: what the store holds, whether it is whole, and making it so."""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from mxt.cli.options import add_workspace
from mxt.cli.terminal import paint
from mxt.errors import EXIT_BUILD, EXIT_OK, StoreError, UsageError
from mxt.words import duration, plural, size

if TYPE_CHECKING:
    from mxt.cli.session import Session
    from mxt.store.check import Checked
    from mxt.store.check_blobs import Damage
    from mxt.store.store import Store

EXAMPLES = """
examples:
  mxt cache info             what takes how much, and what gc would free
  mxt cache check            hash everything again; name every damage, exit 1
  mxt cache check --quick    sizes, links and records only
  mxt cache repair           set damaged files aside, link whole ones again

Builds may run meanwhile. A repair deletes nothing: what is damaged goes to quarantine/, which the next
'mxt gc' empties, and the next build makes it anew.
"""

MAX_SHOWN = 50


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("what", choices=["info", "check", "repair"], help="what to do")
    parser.add_argument("--quick", action="store_true", help="check, repair: hash only what looks changed")
    parser.add_argument("--json", action="store_true", help="info, check: print one JSON object, complete")
    add_workspace(parser)


def run(args: Namespace) -> int:
    if args.quick and args.what == "info":
        raise UsageError("--quick goes with check and repair")
    if args.json and args.what == "repair":
        raise UsageError("--json goes with info and check")
    from mxt.cli.session import Session

    session = Session(args)
    place = session.workspace.store
    if not any((place / name).exists() for name in ("format", "cas", "ac")):
        raise UsageError(
            "there is no store", where=str(place), hint="the first build makes it; --store names another"
        )
    if args.what == "info":
        return _info(session, args)
    if args.what == "check":
        return _check(session.store, args)
    return _repair(session.store, args)


def _waiting(*_: object) -> None:
    print("  waiting for a gc or a repair to end", file=sys.stderr)


# ---- info ---------------------------------------------------------------------------------------


def _info(session: Session, args: Namespace) -> int:
    from mxt.cli.cache_info import gather, render

    info = gather(session)
    if args.json:
        _print_json(info.form())
    else:
        for line in render(info):
            print(line)
    return EXIT_OK


# ---- check --------------------------------------------------------------------------------------


def _look(store: Store, args: Namespace) -> Checked:
    from mxt.cli.meter import Meter
    from mxt.store.check import check

    meter = Meter("checking")
    actions = store.actions
    try:
        return check(
            store.layout,
            actions.public_key,
            store.key.keyid,
            store.history,
            quick=args.quick,
            progress=meter,
            on_wait=_waiting,
        )
    finally:
        meter.close()


def _check(store: Store, args: Namespace) -> int:
    began = time.monotonic()
    found = _look(store, args)
    if args.json:
        _print_json(_form(found))
        return EXIT_BUILD if found.damages else EXIT_OK
    for line in _rendered(found, time.monotonic() - began):
        print(line)
    if not found.damages:
        return EXIT_OK
    print("\nmxt cache repair sets aside what is damaged; the next build makes it anew")
    return EXIT_BUILD


def _form(found: Checked) -> dict[str, Any]:
    return {
        "v": 1,
        "whole": not found.damages,
        "quick": found.quick,
        "blobs": found.blobs.count,
        "results": len(found.records.realisations),
        "hashed_bytes": found.bytes,
        "damages": [
            {
                "kind": damage.kind,
                "place": damage.place,
                "what": damage.what,
                "digest": damage.digest,
                "keys": list(damage.keys),
                "targets": found.targets(damage),
            }
            for damage in found.damages
        ],
        "runs_again": found.runs_again(),
        "lost_results": len(found.lost),
        "missing_evidence": found.missing_evidence,
        "foreign_records": found.records.foreign,
    }


def _rendered(found: Checked, wall_s: float) -> Iterator[str]:
    count = len(found.damages)
    head = paint(plural(count, "damage"), "red", sys.stdout) if count else paint("whole", "green", sys.stdout)
    amount = f"{plural(found.blobs.count, 'blob')}, {plural(len(found.records.realisations), 'result')}"
    hashed = f"{size(found.bytes)} hashed in {duration(wall_s)}"
    yield f"{head}{' in' if count else ':'} {amount}, {hashed}"
    for damage in found.damages[:MAX_SHOWN]:
        yield ""
        yield f"  {damage.place}"
        yield f"    {damage.what}{_needed_by(found, damage)}"
    if count > MAX_SHOWN:
        yield f"\n  ... and {count - MAX_SHOWN} more; --json lists all"
    if found.damages and (again := found.runs_again()):
        yield ""
        yield from _list("not whole any more: ", again)
    if found.lost:
        yield f"note: {plural(len(found.lost), 'result')} lost in an earlier damage, made again when needed"
    if found.missing_evidence:
        gone = plural(found.missing_evidence, "evidence file")
        yield f"note: {gone} of past runs deleted; no build needs any"
    if found.records.foreign:
        yield f"note: {plural(found.records.foreign, 'record')} of operators whose key is not known here"


def _needed_by(found: Checked, damage: Damage) -> str:
    if damage.kind in ("index", "stranger"):
        return ""
    targets = found.targets(damage)
    if not damage.keys:
        return "; no result needs it"
    if damage.digest in damage.keys:  # an action's form lies under its key
        return f"; only explaining {_some(targets)} needs it" if targets else "; no result needs it"
    if not targets:
        return f"; of the action key {damage.keys[0][:12]}, whose target is not known"
    word = "needed by" if damage.kind in ("blob", "lost") else "of"
    return f"; {word} {_some(targets)}"


def _some(names: Sequence[str], limit: int = 5) -> str:
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


# ---- repair -------------------------------------------------------------------------------------


def _repair(store: Store, args: Namespace) -> int:
    from mxt.store.repair import repair

    try:
        began = time.monotonic()
        found = _look(store, args)
        for line in _rendered(found, time.monotonic() - began):
            print(line)
        if not found.damages:
            print("nothing to repair")
            return EXIT_OK
        done = repair(store, found, on_wait=_waiting)
    finally:
        store.close()
    print()
    for word, places in (
        ("set aside", done.aside),
        ("linked again", done.relinked),
        ("rebuilt", done.rebuilt),
        ("cannot be moved", done.left),
    ):
        if places:
            print(f"{word}: {plural(len(places), 'place')}")
    again = found.runs_again()
    if again:
        for line in _list("the next build runs again: ", again):
            print(line)
    else:
        print("the next build runs nothing again")
    if done.left:
        first, *rest = done.left
        more = f" (and {len(rest)} more)" if rest else ""
        raise StoreError(f"not all could be repaired: {first}{more}", hint="check permissions and the disk")
    return EXIT_OK


def _list(head: str, names: Sequence[str]) -> Iterator[str]:
    """Names after a head, filled to the terminal's width."""
    import textwrap

    from mxt.cli.cells import columns_of

    width = max(60, min(columns_of(sys.stdout, 80), 120))
    text = head + _some(names, MAX_SHOWN)
    yield from textwrap.wrap(
        text, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


def _print_json(form: object) -> None:
    import json

    print(json.dumps(form, indent=2, ensure_ascii=False))
