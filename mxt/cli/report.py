"""mxt report: draw the page on a receipt again."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from mxt.cli.options import add_workspace
from mxt.errors import EXIT_OK, UsageError

EXAMPLES = """
examples:
  mxt report //recipes:tiny_sft_lora             beside its receipt: report.html
  mxt report //recipes:tiny_sft_lora -o run.html
  mxt report old/receipt.dsse.json -o old.html   with what evidence is left
  mxt report //recipes:tiny_sft_lora -o - | gzip > report.html.gz

Every build of a recipe writes the report; this writes it anew, runs nothing and changes nothing else.
"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("receipt", metavar="RECEIPT", help="a receipt's file, or the label of a built target")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="where to write it, '-' for standard output (default: beside the receipt)",
    )
    add_workspace(parser)


def run(args: Namespace) -> int:
    from mxt.cli.verify import find_receipt
    from mxt.pages.report import write_html
    from mxt.pages.report_file import report_beside, write_report
    from mxt.receipt.dsse import UnreadableError, signature_holds
    from mxt.receipt.receipt import read_receipt
    from mxt.store.layout import Layout

    path, workspace = find_receipt(args)
    receipt = read_receipt(path)
    if not signature_holds(receipt.envelope, receipt.statement.public):
        raise UnreadableError(
            "the receipt's signature does not hold, so nothing in it is shown",
            where=str(path),
            hint=f"mxt verify {path} says more; building anew writes a new one",
        )
    text = write_html(receipt, Layout(workspace.store), workspace.root)
    if args.output == "-":
        sys.stdout.write(text)
        return EXIT_OK
    place = Path(os.path.expanduser(args.output)) if args.output else Path(report_beside(str(path)))
    if place.is_dir():
        raise UsageError(f"'{args.output}' is a folder", hint="name the file to write, such as report.html")
    write_report(place, text.encode())
    print(os.path.relpath(place))
    return EXIT_OK
