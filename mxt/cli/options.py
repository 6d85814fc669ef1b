"""Options that several verbs share."""

from __future__ import annotations

from argparse import ArgumentParser


def add_workspace(parser: ArgumentParser) -> None:
    """--workspace and --store."""
    parser.add_argument(
        "--workspace", metavar="DIR", help="the workspace's root (default: found from here upwards)"
    )
    parser.add_argument(
        "--store", metavar="DIR", help="where results are kept (default: cache/ in the workspace)"
    )


def add_labels(parser: ArgumentParser, *, required: bool = True) -> None:
    parser.add_argument(
        "labels",
        nargs="+" if required else "*",
        metavar="LABEL",
        help="targets or patterns: //pkg:name, :name, //pkg:all, //...; after '--' -//pkg:x leaves one out",
    )


def add_building(parser: ArgumentParser) -> None:
    """Everything that changes how a build runs, never what it makes."""
    parser.add_argument("-j", "--jobs", type=_positive, metavar="N", help="actions at once (default: cores)")
    parser.add_argument(
        "-k", "--keep-going", action="store_true", help="after a failure build what does not need it"
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="show cached actions and reasons, too")
    parser.add_argument("--events", metavar="FILE", help="write the event stream, one JSON object a line")
    parser.add_argument("--profile", metavar="FILE", help="write a Chrome trace (chrome://tracing, Perfetto)")
    parser.add_argument(
        "--no-sandbox", action="store_true", help="run actions on copies of their inputs, without isolation"
    )


def add_watch(parser: ArgumentParser) -> None:
    """--watch."""
    parser.add_argument("--watch", action="store_true", help="build again after each change, until Ctrl-C")


def _positive(text: str) -> int:
    from argparse import ArgumentTypeError

    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise ArgumentTypeError(f"'{text}' is not a whole number above 0")
    return value
