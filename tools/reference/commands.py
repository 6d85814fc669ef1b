"""docs/reference/commands.md: every verb with its options and examples, as its parser knows them."""

from __future__ import annotations

import argparse
import os
import textwrap
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from mxt import errors
from mxt.cli.verbs import VERBS
from reference.markdown import block, code, document, head, sentence, table

INTRO = """
`mxt VERB --help` shows the same on a terminal. Labels are as in Bazel: `//recipes:x` is the target `x` of
the package `recipes`, `:x` of the one you stand in, `//recipes:all` all of a package, `//...`
all there are; after `--`, `-//recipes:x` leaves one out.
"""
CODES = {
    errors.EXIT_OK: "fine",
    errors.EXIT_BUILD: "the build failed: a target, an MXTBUILD, a recipe, an action; "
    "`mxt verify`: a mismatch",
    errors.EXIT_USAGE: "the command line, the workspace or the configuration is at fault; "
    "`mxt verify`: what is to be verified cannot be read",
    errors.EXIT_TESTS: "a test's verdict is negative",
    errors.EXIT_INTERRUPTED: "interrupted",
}


def page() -> str:
    os.environ["COLUMNS"] = "100"  # what argparse fills usage lines to
    lines = head("Commands", INTRO)
    lines += table(("verb", ""), [(f"[{name}](#mxt-{name})", summary) for name, summary in VERBS.items()])
    lines += ["## Exit codes", ""]
    lines += table(("code", "means"), [(str(number), what) for number, what in sorted(CODES.items())])
    for name, summary in VERBS.items():
        lines += _verb(name, summary)
    return document(lines)


def _verb(name: str, summary: str) -> list[str]:
    verb = import_module(f"mxt.cli.{name}")
    parser = argparse.ArgumentParser(prog=f"mxt {name}", allow_abbrev=False)
    verb.add_arguments(parser)
    lines = [f"## mxt {name}", "", sentence(summary), ""]
    for found in _parsers(parser):
        usage = " ".join(found.format_usage().removeprefix("usage: ").split())
        lines += block(textwrap.fill(usage, 100, subsequent_indent=" " * 8, break_on_hyphens=False))
        rows = [_row(action) for action in found._actions if _shown(action)]
        lines += table(("argument", "meaning"), rows)
    return [*lines, *_examples(verb.EXAMPLES)]


def _parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """A verb's parser, or those of the words that come after it."""
    inner = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    if not inner:
        yield parser
    for action in inner:
        for name in action.choices:
            yield from _parsers(action.choices[name])


def _shown(action: argparse.Action) -> bool:
    return action.dest != "help" and action.help is not argparse.SUPPRESS


def _row(action: argparse.Action) -> tuple[str, str]:
    value = _value(action)
    if action.option_strings:
        name = ", ".join(code(o) for o in action.option_strings) + (f" {code(value)}" if value else "")
    else:
        name = code(value)
    return name, (action.help or "") % {"default": action.default, "prog": "", "choices": ""}


def _value(action: argparse.Action) -> str:
    if action.nargs == 0:
        return ""
    if action.choices is not None and action.metavar is None:
        return "|".join(str(c) for c in action.choices)
    metavar: Any = action.metavar or action.dest.upper()
    return metavar if isinstance(metavar, str) else " ".join(metavar)


def _examples(text: str) -> list[str]:
    """The parts of an epilog: what is indented as it stands, paragraphs as such."""
    lines: list[str] = []
    for part in text.strip("\n").split("\n\n"):
        first, _, rest = part.partition("\n")
        if rest.startswith("  "):
            lines += [sentence(first), "", *block(textwrap.dedent(rest))]
        else:
            lines += [*textwrap.wrap(part, 110), ""]
    return lines
