"""mxt init: make a workspace that builds."""

from __future__ import annotations

import os
import shlex
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from mxt.cli.terminal import paint, warn
from mxt.errors import EXIT_OK, UsageError
from mxt.words import plural

EXAMPLES = """
examples:
  mxt init demo                       a workspace in demo/ that builds
  mxt init --list                     the recipes to start from
  mxt init . --recipe tiny_sft_full   in this folder, from another recipe
  mxt init demo --data rows.jsonl     from your own rows

Nothing that is there already is overwritten: where a file is in the way, nothing is written. A README
stays as it is, a .gitignore gets the lines that it lacks.
"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("folder", nargs="?", metavar="DIR", help="where; made if it is not there")
    parser.add_argument("--list", action="store_true", help="list the recipes to start from")
    parser.add_argument("--recipe", metavar="NAME", default="", help="the recipe to start from (see --list)")
    parser.add_argument(
        "--data",
        metavar="FILE",
        action="append",
        default=[],
        help="your own rows, JSONL or Parquet, instead of the example data; may be given again",
    )
    parser.add_argument(
        "--ci", choices=["github", "gitlab", "none"], default="github", help="which CI file (default: github)"
    )


def run(args: Namespace) -> int:
    rules = _starters()
    if args.list:
        if args.folder is not None or args.recipe or args.data:
            raise UsageError("--list makes nothing: it goes alone", hint="mxt init --list, then mxt init DIR")
        return _list(rules.starters())
    if args.folder is None:
        raise UsageError("name the new workspace's folder", hint="mxt init DIR; '.' is the current one")
    from mxt.scaffold.origin import origin
    from mxt.scaffold.workspace_files import common_files, target_name
    from mxt.scaffold.write_files import write_files

    folder = _folder(args.folder)
    name = target_name(folder.name)
    data = [Path(os.path.abspath(os.path.expanduser(text))) for text in args.data]
    start = rules.starter(args.recipe, name, _title(folder.name) or name, data)
    files: dict[str, Any] = start.files
    come_from = origin()
    files.update(common_files(name, args.ci, come_from, tested=bool(start.test)))
    written = write_files(folder, files)

    label = f"//recipes:{name}"
    if written:
        made = paint("made", "green", sys.stdout)
        what = f"{made} {label} in {args.folder}: {plural(len(written), 'file')}"
    else:
        what = f"{label} is there already in {args.folder}: nothing to write"
    print(what, flush=True)
    _warn_of_outer(folder)
    if come_from.doubt:
        warn(come_from.doubt)
    if os.uname().machine != "x86_64":
        warn(f"the toolchain is locked for x86_64; this machine, {os.uname().machine}, can compute keys only")
    _say_what_next(args.folder, label, come_from.url, build=start.build, test=start.test)
    return EXIT_OK


def _warn_of_outer(folder: Path) -> None:
    """A workspace within a workspace is one of its own, which not everybody expects."""
    outer = next((p for p in folder.parents if (p / "MXTBUILD").is_file()), None)
    if outer is not None:
        warn(f"the new workspace lies in another; neither sees the other's targets: {outer}")


def _say_what_next(folder: str, label: str, url: str, *, build: str, test: str) -> None:
    from mxt.scaffold.origin import CHECKOUT

    home = f"MXT_HOME={shlex.quote(str(CHECKOUT))}"
    print("\nnext:")
    if os.path.realpath(".") != os.path.realpath(folder):
        print(f"  cd {shlex.quote(folder)}")
    if not url:
        print(f"  export {home}  # mxtw runs this checkout")
    # a target may be called in any script, so the shell may want quotes
    shown = shlex.quote(label)
    steps = [
        (f"./mxtw doctor {shown}", "can this machine run it?"),
        (f"./mxtw build {shown}", build),
    ]
    if test:
        steps.append((f"./mxtw test {shown}", test))
    width = max(len(command) for command, _ in steps)
    for command, what in steps:
        print(f"  {command:<{width}}  # {what}")
    if url:
        print(f"\nthe first ./mxtw fetches mxt into .mxt/; with {home} it runs this checkout instead")


def _starters() -> Any:
    """The module that knows the recipes: rules/starters."""
    from mxt.loading.rule_modules import builtin_module

    return builtin_module("starters")


def _list(found: dict[str, str]) -> int:
    width = max(map(len, found))
    for number, (name, line) in enumerate(found.items()):
        print(f"  {name:<{width}}  {line}{' (default)' if number == 0 else ''}")
    return EXIT_OK


def _folder(text: str) -> Path:
    """The folder's absolute path. Raises UsageError where something else has its name."""
    if not text.strip() or "\0" in text:
        raise UsageError("the folder's name is empty", hint="mxt init DIR; '.' is the current one")
    try:
        folder = Path(os.path.abspath(os.path.expanduser(text)))
    except OSError:
        raise UsageError("the current folder no longer exists", hint="change into one that does") from None
    if os.path.lexists(folder) and not folder.is_dir():
        raise UsageError(f"'{text}' is there and is no folder", hint="choose another name")
    return folder


def _title(name: str) -> str:
    return "".join(c for c in name if c.isprintable()).strip()
