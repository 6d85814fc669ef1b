"""mxt toolchain: write the lock of an environment, or hold the environment against it; pin images."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from mxt.cli.options import add_workspace
from mxt.errors import EXIT_OK, ToolchainError, UsageError
from mxt.words import plural

EXAMPLES = """
examples:
  mxt toolchain check                        is it what the root's locks say?
  mxt toolchain check --contents             the same, reading every file
  mxt toolchain check --lock FILE            without a workspace
  mxt toolchain lock //:cpu_py311            what a new lock would change
  mxt toolchain lock //:cpu_py311 --write    write it
  mxt toolchain pin //:rocm_primus           which image is its tag now?
  mxt toolchain pin //:rocm_primus --write   write its digest into the MXTBUILD
  mxt toolchain pin //:mine --local          the same of an image built here

A lock holds the closure of a requirements file (by default the one beside it: x.lock.json, x.txt),
as installed in the environment that runs mxt. Actions see that closure and nothing else.
"""


class _Place(NamedTuple):
    """A lock to work on. shown: how messages name it."""

    path: Path
    shown: str


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "what",
        choices=["lock", "check", "pin"],
        help="lock: write a lock; check: compare with it; pin: look up a container image's digest",
    )
    parser.add_argument(
        "labels", nargs="*", metavar="LABEL", help="toolchain targets (default: those of the root package)"
    )
    parser.add_argument("--lock", metavar="FILE", help="a lock by its path, instead of labels")
    parser.add_argument(
        "--from", dest="pins", metavar="FILE", help="lock: the requirements to lock, name==version a line"
    )
    parser.add_argument(
        "--write", action="store_true", help="lock, pin: write the file (default: show what would change)"
    )
    parser.add_argument(
        "--local",
        action="store_true",
        help="pin: ask podman or docker for the image that is here, no registry",
    )
    parser.add_argument("--contents", action="store_true", help="check: read every installed file")
    add_workspace(parser)


def run(args: Namespace) -> int:
    if args.what == "pin":
        from mxt.cli.toolchain_pin import pin

        return pin(args)
    if args.local:
        raise UsageError("--local goes with 'pin'", hint="mxt toolchain pin LABEL --local")
    if args.lock and args.labels:
        raise UsageError("both --lock and a label were given", hint="name the toolchain in one way")
    places = [_Place(Path(args.lock), args.lock)] if args.lock else list(_of_labels(args))
    if args.pins and len(places) > 1:
        raise UsageError(
            "--from goes with one toolchain", hint="name it: mxt toolchain lock LABEL --from FILE"
        )
    for place in places:
        if args.what == "lock":
            _lock(place, args)
        else:
            _check(place, args)
    return EXIT_OK


def _of_labels(args: Namespace) -> Iterator[_Place]:
    from mxt.cli.session import Session

    session = Session(args)
    found = False
    for label in session.resolve(args.labels or ["//:all"]):
        package, _, name = label.removeprefix("//").partition(":")
        raw = session.package(package).targets.get(name)
        if raw is None:
            raise UsageError(f"there is no target '{label}'", where=f"{package}/MXTBUILD".lstrip("/"))
        if raw.rule != "toolchain":
            if args.labels:
                raise UsageError(f"'{label}' is a {raw.rule}, not a toolchain", where=raw.where)
            continue
        if "lock" not in raw.attrs and not args.labels:
            continue
        if "lock" not in raw.attrs:
            raise ToolchainError(
                f"'{label}' is a container image: it has no lock, its digest is its pin",
                where=raw.where,
                hint=f"mxt toolchain pin {label} asks what its tag stands for today",
            )
        found = True
        shown = f"{package}/{raw.attrs['lock']}".lstrip("/")
        yield _Place(session.root / shown, shown)
    if not found:
        raise UsageError("the root package declares no toolchain", hint="name one: mxt toolchain check LABEL")


def _check(place: _Place, args: Namespace) -> None:
    from mxt.action.toolchain import Depth, read_lock, require
    from mxt.action.toolchain_check import memory_of

    lock = read_lock(place.path, place.shown)
    require(
        lock,
        _site(),
        state=memory_of(_site()),
        depth=Depth.CONTENTS if args.contents else Depth.RECORDS,
        progress=_show_progress if args.contents and sys.stderr.isatty() else None,
    )
    looked = "every file read" if args.contents else "by the installer's records"
    print(f"{place.shown}: fits, {plural(len(lock.distributions), 'distribution')}, {looked}")


def _lock(place: _Place, args: Namespace) -> None:
    from mxt.action.toolchain import make_lock, read_pins
    from mxt.action.toolchain_lock import changes

    pins = Path(args.pins) if args.pins else _beside(place)
    data = make_lock(_site(), read_pins(pins))
    old = place.path.read_bytes() if place.path.exists() else b""
    if old == data:
        print(f"{place.shown}: up to date")
        return
    for change in changes(old, data, place.shown):
        print(f"  {change}")
    if not args.write:
        print(f"{place.shown}: would change; write it with --write")
        return
    aside = place.path.with_name(f".{place.path.name}.part")
    aside.write_bytes(data)
    aside.replace(place.path)
    print(f"{place.shown}: written; results made under the old lock are not found under this one")


def _beside(place: _Place) -> Path:
    suffix = ".lock.json"
    if not place.path.name.endswith(suffix):
        raise UsageError(
            f"cannot tell which requirements '{place.shown}' locks", hint="say it with --from FILE"
        )
    return place.path.with_name(place.path.name.removesuffix(suffix) + ".txt")


def _site() -> Path:
    from mxt.execution.prepare import site_packages

    return Path(os.path.realpath(site_packages()))


def _show_progress(done: int, total: int) -> None:
    end = "\r" if done + 1 < total else "\r\x1b[K"
    print(f"reading distribution {done + 1} of {total}", end=end, file=sys.stderr, flush=True)
