"""What a schema says of values that may come to mean something else, and what `mxt pin` writes for them.

The module of a schema, rules/<schema>.py (see `config()` in an MXTBUILD), may define two functions:

    def loose(recipe, note, folder):   every Loose value of a recipe; asks nobody
    def look_up(environ):              a function from a question to its Answer; raises StageError

recipe: validated and with all defaults. note: the comment behind the value at a path, "" for none: it tells
by which name a value was pinned earlier; always None where only unpinned values are wanted. folder: of the
recipe's package. `mxt pin` asks each question once, however many recipes have it, and writes the answers into
the YAML files.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Loose:
    """A value that may come to mean something else, or that was pinned and may be moved.

    path: its keys from the top of the recipe. question: what to ask for it; equal ones are asked once; None
    for a pinned value that stays, as no note tells its name. firm: it means one thing already, and is only
    looked at whether it exists. goes_with: another value without which it may not move.
    """

    path: tuple[str, ...]
    question: Hashable
    firm: bool = False
    goes_with: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """What a loose value means now.

    value: what to write, a text or a list of them. note: a comment to write behind it, "" for none.
    about: of what it is, for people. consent: what somebody must have read before this may be written, a
    line each; () where no consent is needed.
    """

    value: str | tuple[str, ...]
    note: str = ""
    about: str = ""
    consent: tuple[str, ...] = ()
