"""mxt graph: a picture of what targets are made from, and how each part stands."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from mxt.cli.options import add_labels, add_workspace
from mxt.errors import EXIT_OK, StoreError, UsageError
from mxt.words import plural

EXAMPLES = """
examples:
  mxt graph //recipes:tiny_sft_lora             a page: mxt-out/graph.html
  mxt graph //... --output all.html             everything, elsewhere
  mxt graph //recipes:x.train --output x.svg    only the picture
  mxt graph //recipes:x --output - > x.svg      to standard output
  mxt graph //... --no-sources                  without the workspace's files

A box is an action, a bundle or a source; lines go to the reader. Its state:
  hit        its result is in the store
  executed   so, and the last build made it
  stale      it would run: something that it reads has changed
  waiting    it has never been built here
  failed     in its last build, and nothing has changed since
  cannot run it would run and cannot, on any machine: the box says why
  skipped    its last build did not get to it

A dotted line leads to what is only saved time by it.

The page is one file that needs no network: drag and scroll, or Tab, arrows, Enter, / and Esc.
Boxes that stand alike are drawn as one block. Nothing is built.
"""
MOST = 6000  # boxes; beyond that no picture helps


def add_arguments(parser: ArgumentParser) -> None:
    add_labels(parser)
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="FILE.html, FILE.svg, or - for SVG on standard output (default: mxt-out/graph.html)",
    )
    parser.add_argument("--no-sources", action="store_true", help="leave out the files of the workspace")
    add_workspace(parser)


def run(args: Namespace) -> int:
    kind = _kind(args.output)
    from mxt.cli.session import Session

    session = Session(args)
    session.make_folders()
    graph = session.analyse(session.resolve(args.labels, keep_manual=True))
    session.loader.close()
    if len(graph.actions) > MOST:
        raise UsageError(
            f"a picture of {len(graph.actions)} actions would show nothing",
            hint=f"ask for fewer targets (up to {MOST} actions), or use 'mxt query --output graph'",
        )
    from mxt.pages.graph_nodes import view

    shown = view(session.root, graph, session.store, session.runner(graph), sources=not args.no_sources)
    session.store.close()
    if len(shown.nodes) > MOST:
        raise UsageError(
            f"a picture of {len(shown.nodes)} boxes would show nothing",
            hint="leave out the files of the workspace with --no-sources, or ask for fewer targets",
        )
    if not shown.nodes:
        raise UsageError("nothing to draw: these targets have no actions")
    title = f"Graph of {' '.join(args.labels)}"
    if kind == ".svg":
        from mxt.pages.picture import svg

        text = svg([node.picture for node in shown.nodes], shown.edges, saves=shown.saves, label=title)
    else:
        from mxt.pages.graph_page import graph_page

        text = graph_page(title, shown.summary, shown.nodes, shown.edges, shown.saves)
    if args.output == "-":
        sys.stdout.write(text)
        return EXIT_OK
    path = Path(args.output) if args.output else session.root / "mxt-out" / "graph.html"
    _write(path, text)
    from mxt.pages.picture import WORDS

    counts = shown.counts()
    words = ", ".join(f"{counts[state]} {WORDS.get(state, state)}" for state in _ORDER if state in counts)
    boxes = sum(n for state, n in counts.items() if state != "source")
    sources = f", {plural(counts['source'], 'source')}" if "source" in counts else ""
    print(f"{_shown(path)}: {boxes} {'box' if boxes == 1 else 'boxes'} ({words}){sources}")
    return EXIT_OK


_ORDER = ("hit", "executed", "stale", "waiting", "failed", "refused", "skipped")


def _kind(output: str | None) -> str:
    """ ".html" or ".svg". Raises UsageError for another ending."""
    if output is None:
        return ".html"
    kind = ".svg" if output == "-" else os.path.splitext(output)[1].lower()
    if kind in (".htm", ".html", ".svg"):
        return ".svg" if kind == ".svg" else ".html"
    raise UsageError(
        f"--output '{output}' is neither .html nor .svg",
        hint="name a file with one of these endings, or - for SVG on standard output",
    )


def _write(path: Path, text: str) -> None:
    """A browser that reloads never sees a part."""
    from mxt.store.replace_file import replace_file

    if path.is_dir():
        raise UsageError(f"'{path}' is a folder", hint="name a file with --output")
    if path.is_symlink():
        raise UsageError(f"'{path}' is a link, as results of targets are", hint="name a file with --output")
    try:
        replace_file(path, text.encode())
    except OSError as error:
        raise StoreError(
            f"cannot write the picture: {error.strerror}", where=str(path), hint="name another file"
        ) from None


def _shown(path: Path) -> str:
    """Relative to here, if it lies below."""
    relative = os.path.relpath(path)
    return relative if not relative.startswith("..") else str(path)
