"""The command `mxt`: finds the verb, parses its arguments, turns errors into messages and exit codes."""

from __future__ import annotations

import os
import sys

from mxt.cli.verbs import VERBS

TYPE_CHECKING = False  # not from typing, whose import takes as long as a null build of a thousand targets
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_HEAD = "usage: mxt VERB [OPTION...] [LABEL...]\n\nA build system for fine-tuned language models.\n\nverbs:\n"
_TAIL = """
examples:
  mxt build //recipes:tiny_sft_lora     build a recipe and its receipt
  mxt build //... -n                    what would run, and under which keys
  mxt explain //recipes:tiny_sft_lora   why
  mxt verify //recipes:tiny_sft_lora    check its receipt against the disk

'mxt VERB --help' explains a verb and shows examples.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code (see docs/design.md)."""
    args = list(sys.argv[1:] if argv is None else argv)
    return guarded(lambda: _main(args))


def guarded(action: Callable[[], int]) -> int:
    """The exit code of an action, its errors shown as messages."""
    try:
        return action()
    except BrokenPipeError:
        # the reader of our output went away, as in `mxt log x | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 8
    except Exception as error:  # noqa: BLE001 - the last resort: every error becomes a message and a code
        from mxt.errors import MxtError, StoreError

        if isinstance(error, OSError):
            error = StoreError(
                f"{error.strerror or error}",
                where=str(error.filename or ""),
                hint="check space and permissions",
            )
        if not isinstance(error, MxtError):
            return _crash(error)
        from mxt.cli.terminal import print_error

        print_error(error)
        return error.exit_code


def _main(args: list[str]) -> int:
    if not args or args[0] in ("-h", "--help", "help"):
        width = max(map(len, VERBS))
        verbs = "".join(f"  {name:<{width}}  {summary}\n" for name, summary in VERBS.items())
        sys.stdout.write(_HEAD + verbs + _TAIL)
        return 0 if args else 2
    if args[0] in ("-V", "--version", "version"):
        from mxt import __version__

        print(f"mxt {__version__}")
        return 0
    name = args[0]
    if name == "complete":  # what the shells' scripts call: no verb for people
        from mxt.cli.complete import complete

        return complete(args[1:])
    if name not in VERBS:
        from mxt.errors import UsageError, did_you_mean

        raise UsageError(
            f"unknown verb '{name}'{did_you_mean(name, VERBS)}", hint="'mxt --help' lists the verbs"
        )
    if name == "build":
        from mxt.cli.glance import nothing_to_do

        if nothing_to_do(args[1:]):
            return 0
    spare_the_collector()
    from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
    from importlib import import_module

    verb = import_module(f"mxt.cli.{name}")
    parser = ArgumentParser(
        prog=f"mxt {name}",
        description=VERBS[name].capitalize() + ".",
        epilog=_filled(verb.EXAMPLES),
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    verb.add_arguments(parser)
    own, rest = args[1:], []
    if getattr(verb, "TAKES_ARGUMENTS", False) and "--" in own:
        cut = own.index("--")
        own, rest = own[:cut], own[cut + 1 :]
    return int(verb.run(parser.parse_args(own, Namespace(arguments=rest))))


def spare_the_collector() -> None:
    """Graphs of 100,000 targets are all alive: looking for garbage in them took a fifth of the analysis."""
    import gc

    gc.set_threshold(100_000, 20, 20)


def _filled(text: str) -> str:
    """Examples as they stand, paragraphs filled to 80 columns."""
    import textwrap

    parts = text.strip("\n").split("\n\n")
    return "\n\n".join(p if "\n  " in p else textwrap.fill(p, 80) for p in parts)


def _crash(error: Exception) -> int:
    """A defect of mxt itself: keep the traceback in a file, show one line."""
    import tempfile
    import traceback

    with tempfile.NamedTemporaryFile(
        "w", prefix="mxt-crash-", suffix=".txt", delete=False, encoding="utf-8"
    ) as file:
        traceback.print_exception(error, file=file)
    if os.environ.get("MXT_DEBUG"):
        traceback.print_exception(error)
    print(
        f"error: mxt itself failed: {type(error).__name__}: {error}\n"
        f"  hint: this is a defect of mxt; please report it with {file.name}",
        file=sys.stderr,
    )
    return 1
