"""mxt verify: recompute everything that a receipt states, and name all that does not agree."""

from __future__ import annotations

import os
import sys
import textwrap
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from mxt.cli.options import add_workspace
from mxt.errors import UsageError

if TYPE_CHECKING:
    from mxt.loading.workspace import Workspace
    from mxt.receipt.findings import Mismatch, Result

SUMMARY = "recompute everything a receipt states"
EXAMPLES = """
examples:
  mxt verify //recipes:tiny_sft_lora              the receipt of its last build
  mxt verify mxt-out/recipes/tiny_sft_lora/receipt.dsse.json
  mxt verify receipt.dsse.json --trusted-keys keys.txt    a colleague's
  mxt verify //recipes:tiny_sft_lora --json | jq .mismatches

exit codes: 0 verified, 1 something does not agree, 2 the receipt cannot be read
"""

MAX_SHOWN = 50
_NARROWEST, _WIDEST = 60, 120


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("receipt", metavar="RECEIPT", help="a receipt's file, or the label of a built target")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object, complete")
    parser.add_argument(
        "--trusted-keys", metavar="FILE", help="operators to believe beside yourself, one name:base64 a line"
    )
    add_workspace(parser)


def run(args: Namespace) -> int:
    from mxt.cli.meter import Meter
    from mxt.receipt.dsse import UnreadableError
    from mxt.receipt.trust import load_trusted_keys
    from mxt.receipt.verify import verify_receipt

    trusted = load_trusted_keys(args.trusted_keys)
    path, workspace = find_receipt(args)
    meter = Meter("verifying")
    try:
        result = verify_receipt(
            path, workspace=workspace.root, store=workspace.store, trusted=trusted, progress=meter
        )
    except UnreadableError as error:
        if not args.json:
            raise
        _print_json(
            {
                "version": 1,
                "verified": False,
                "exit_code": error.exit_code,
                "receipt": _shown(path),
                "error": {"message": error.message, "where": error.where, "hint": error.hint},
            }
        )
        return error.exit_code
    finally:
        meter.close()
    result.receipt = _shown(path)
    if args.json:
        _print_json(result.form())
    else:
        for line in render(result, _columns()):
            print(line)
    if result.mismatches and distrust(workspace, result) and not args.json:
        print(f"\nthe next build makes again what is damaged in the store: mxt build {result.target}")
    return result.exit_code


def distrust(workspace: Workspace, result: Result) -> bool:
    """See to it that the next build finds what was found here; whether any of it was in the store.

    It would not look, as long as nothing that a build looks at has changed: a bad disk changes bytes
    without a trace. So the blobs are hashed once more and set aside, and the short cuts are dropped.
    """
    import shutil

    from mxt.store.store import Store

    store = Store(workspace.store)
    inside = False
    for mismatch in result.mismatches:
        place = os.path.abspath(mismatch.where)
        if not place.startswith(store.layout.text + os.sep):
            continue
        inside = True
        part, _, name = os.path.relpath(place, store.layout.root).partition(os.sep)
        if part == "cas":
            store.cas.verify(name.rpartition("/")[2].removesuffix(".x"))
        elif part == "out":
            store.outputs.set_aside(place)
    if inside:
        shutil.rmtree(store.layout.state / "snapshots", ignore_errors=True)
    return inside


def find_receipt(args: Namespace) -> tuple[Path, Workspace]:
    """The receipt's path, and the workspace to hold it against: the one that it lies in, else the current.

    Raises UsageError where there is no workspace, UnreadableError where a label has no receipt.
    """
    from mxt.loading.label import Label
    from mxt.loading.workspace import OUTPUTS, find_workspace
    from mxt.receipt.dsse import UnreadableError
    from mxt.receipt.receipt import RECEIPT_NAME

    def workspace(start: Path | None = None) -> Workspace:
        return find_workspace(start, root=args.workspace, store=args.store)

    text: str = args.receipt
    if text.startswith(("//", "@", ":")):
        found = workspace()
        label = Label.parse(text, found.package_of(Path.cwd()), error=UsageError)
        path = found.root / OUTPUTS / label.path / RECEIPT_NAME
        if not path.is_file():
            raise UnreadableError(f"'{label}' has no receipt", where=_shown(path), hint=f"mxt build {label}")
        return path, found
    path = Path(os.path.abspath(os.path.expanduser(text)))
    if path.is_dir():
        path /= RECEIPT_NAME
    if not path.is_file():
        raise UnreadableError(
            "there is no such receipt", where=text, hint="name the file, or a label such as //pkg:name"
        )
    if args.workspace is None and "MXT_WORKSPACE" not in os.environ:
        try:
            # --store is relative to where the user stands, not to the receipt
            store = os.path.abspath(args.store) if args.store else None
            return path, find_workspace(path.parent, store=store)
        except UsageError:
            pass
    return path, workspace()


def render(result: Result, width: int) -> Iterator[str]:
    """The result for people, width columns wide as far as paths and digests allow."""
    from mxt.cli.terminal import paint
    from mxt.words import plural

    wrong = len(result.mismatches)
    if wrong:
        verdict = paint(f"{wrong} mismatch{'es' if wrong > 1 else ''}", "red", sys.stdout)
    else:
        verdict = paint("verified", "green", sys.stdout)
    yield f"{verdict}  {result.target or result.receipt}"
    for name, text in _facts(result):
        yield from _field(name, text, width)
    for number, mismatch in enumerate(result.mismatches[:MAX_SHOWN], 1):
        yield ""
        yield from _block(mismatch, f"mismatch {number} of {wrong}:", width)
    if wrong > MAX_SHOWN:
        yield ""
        yield f"... and {wrong - MAX_SHOWN} more; --json lists all"
    if result.notes:
        yield ""
        for note in result.notes[:MAX_SHOWN]:
            yield from _wrapped(
                f"{paint('note:', 'cyan', sys.stdout)} {note.where}: {note.text}", "  ", width
            )
        if len(result.notes) > MAX_SHOWN:
            yield f"... and {plural(len(result.notes) - MAX_SHOWN, 'more note')}; --json lists all"


def _facts(result: Result) -> Iterator[tuple[str, str]]:
    from mxt.words import duration, plural, size

    yield "receipt", result.digest
    if result.signer is not None:
        yield "signed by", f"{result.signer.name or 'a key that you do not know'} ({result.signer.keyid})"
    if result.target:
        yield "built", f"{result.started} to {result.finished}"
        yield (
            "holds",
            f"{plural(result.actions, 'action')}, {plural(result.files, 'file')}, {size(result.bytes)}",
        )
        yield "read", f"{size(result.hashed_bytes)} in {duration(result.wall_s)}"


def _block(mismatch: Mismatch, head: str, width: int) -> Iterator[str]:
    from mxt.cli.terminal import paint

    first, *rest = _wrapped(f"{head} {mismatch.what}", "  ", width)
    yield paint(first, "bold", sys.stdout)
    yield from (paint(line, "bold", sys.stdout) for line in rest)
    yield f"  {mismatch.where}"
    yield from _field("expected", mismatch.expected, width)
    yield from _field("found", mismatch.found, width)


def _field(name: str, text: str, width: int) -> Iterator[str]:
    # values are broken anywhere: they are digests and JSON, without spaces to break at
    lines = textwrap.wrap(text, width - 13, break_on_hyphens=False) or [""]
    yield f"  {name:<9}  {lines[0]}"
    for line in lines[1:]:
        yield f"{'':13}{line}"


def _wrapped(text: str, indent: str, width: int) -> list[str]:
    return textwrap.wrap(
        text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _columns() -> int:
    from shutil import get_terminal_size

    return max(_NARROWEST, min(get_terminal_size().columns, _WIDEST))


def _shown(path: Path) -> str:
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


def _print_json(form: object) -> None:
    import json

    print(json.dumps(form, indent=2, ensure_ascii=False))
