"""mxt pin: look up what branches, tags and patterns of a recipe mean now, and write that into its YAML."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mxt.cli.options import add_workspace
from mxt.errors import EXIT_BUILD, EXIT_OK, LoadError, MxtError

if TYPE_CHECKING:
    from pathlib import Path

    from mxt.cli.pin_found import Recipe
    from mxt.pins import Answer, Loose

EXAMPLES = """
examples:
  mxt pin recipes/x.yaml            write what its names mean now
  mxt pin //recipes:x //recipes:y   the same, by targets
  mxt pin --check //...             is anything unpinned? asks nobody
  mxt pin --update //recipes:x      move what was pinned earlier, too
  mxt pin --update --check //...    what would move?
  mxt pin --trust-code //recipes:x  also the digest of code you have read

Only those values change, in place: comments and layout stay. Behind a value stands the name that it was
looked up by ('# pinned: main on 2026-11-22'), unless a comment of your own does: that one is never touched.
--update looks the name up again.

All or nothing: where one look-up fails, nothing is written, unless --keep-going. --check exits with 1 where
something is unpinned, and so does 'mxt pin' where something stays so.
"""

LISTED = 60  # characters of a list that is shown and not counted


@dataclass(frozen=True)
class _Change:
    """What a loose value of a recipe becomes. old: what stands there, None for nothing."""

    recipe: Recipe
    loose: Loose
    old: Any
    answer: Answer

    @property
    def same(self) -> bool:
        new = self.answer.value
        return bool(self.old == (new if isinstance(new, str) else list(new)))

    @property
    def field(self) -> str:
        return ".".join(self.loose.path)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "recipes", nargs="+", metavar="RECIPE", help="a recipe's YAML file, or targets made from recipes"
    )
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if something would")
    parser.add_argument(
        "--update", action="store_true", help="look up again what was pinned earlier, by the name behind it"
    )
    parser.add_argument(
        "--trust-code", action="store_true", help="allow the code that is shown to run: you have read it"
    )
    parser.add_argument(
        "-k", "--keep-going", action="store_true", help="write what was found, even where a look-up failed"
    )
    add_workspace(parser)


def run(args: Namespace) -> int:
    from mxt.cli.pin_found import find_recipes
    from mxt.cli.session import Session
    from mxt.cli.terminal import warn

    recipes = find_recipes(Session(args), args.recipes)
    for recipe in recipes:
        for field in recipe.out_of_reach():
            warn(f"{recipe.shown}: {field} is set by a macro: pin it there by hand")
    if args.check and not args.update:
        return _check(recipes, " ".join(args.recipes))
    if not args.check:
        for recipe in recipes:
            _must_be_writable(recipe, any(x.question for x in recipe.loose(moving=args.update)))
    changes, failed = _look_up(recipes, moving=args.update)
    held = [c for c in changes if c.answer.consent and not c.same and not args.trust_code]
    kept_back = {(c.recipe.shown, c.loose.path) for c in held}
    held += [c for c in changes if not c.same and (c.recipe.shown, c.loose.goes_with) in kept_back]
    due = [c for c in changes if not c.same and c not in held]
    for change in changes:
        if change.answer.consent and not change.same:
            _show_code(change, trusted=args.trust_code)
    _show(recipes, due, would=args.check)
    if failed and not args.keep_going:
        if due:
            print("nothing was written", file=sys.stderr)
        return EXIT_BUILD
    if not args.check:
        _write(recipes, due)
    _sum_up(recipes, due, changes, held, would=args.check)
    return EXIT_BUILD if failed or held or (args.check and due) else EXIT_OK


def _check(recipes: Sequence[Recipe], named: str) -> int:
    """Names what is unpinned; 1 if anything is. named: as the recipes were given."""
    from mxt.words import plural

    count = 0
    for recipe in recipes:
        for loose in recipe.loose(moving=False):
            if loose.firm:
                continue
            count += 1
            old = _old(recipe, loose)
            shown = "is not given" if old is None else f"is {_text(old)}"
            print(f"{recipe.place(loose.path)}: {'.'.join(loose.path)} {shown}")
    if count:
        print(f"{plural(count, 'value')} unpinned; look {'them' if count > 1 else 'it'} up: mxt pin {named}")
        return EXIT_BUILD
    print(_all_pinned(recipes))
    return EXIT_OK


def _all_pinned(recipes: Sequence[Recipe]) -> str:
    from mxt.words import plural

    rest = "else " if any(r.out_of_reach() for r in recipes) else ""
    return f"{plural(len(recipes), 'recipe')}: everything {rest}is pinned"


def _look_up(recipes: Sequence[Recipe], *, moving: bool) -> tuple[list[_Change], bool]:
    """Every loose value with its answer, and whether one is missing: its error has been shown then."""
    from mxt.cli.terminal import print_error

    ask: dict[str, Callable[[Hashable], Answer]] = {}
    known: dict[tuple[str, Hashable], Answer | MxtError] = {}
    changes: list[_Change] = []
    needed: dict[int, tuple[MxtError, list[str]]] = {}
    for recipe in recipes:
        module = recipe.module
        for loose in recipe.loose(moving=moving):
            if loose.question is None:
                field = ".".join(loose.path)
                where = recipe.place(loose.path)
                print(f"{where}: {field} stays: no '# pinned: NAME on DATE' behind it says what it was")
                continue
            key = module.__name__, loose.question
            if key not in known:
                if module.__name__ not in ask:
                    ask[module.__name__] = module.look_up(os.environ)
                try:
                    known[key] = ask[module.__name__](loose.question)
                except MxtError as error:
                    known[key] = error
            answer = known[key]
            if isinstance(answer, MxtError):
                needed.setdefault(id(answer), (answer, []))[1].append(recipe.place(loose.path))
            else:
                changes.append(_Change(recipe, loose, _old(recipe, loose), answer))
    for problem, places in needed.values():
        also = f", also {', '.join(places[1:])}" if places[1:] else ""
        of = f"{problem.where}: " if problem.where else ""
        print_error(LoadError(f"{of}{problem.message}{also}", where=places[0], hint=problem.hint))
    return changes, bool(needed)


def _old(recipe: Recipe, loose: Loose) -> Any:
    """What the file says; None where it leaves it to the default."""
    value = recipe.edit.value
    for key in loose.path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _must_be_writable(recipe: Recipe, wanted: bool) -> None:
    """Said before anything is asked. A file of which nothing changes may be read-only."""
    if wanted and not (recipe.path.stat().st_mode & 0o222 and os.access(recipe.path.parent, os.W_OK)):
        raise LoadError("is read-only", where=recipe.shown, hint="make the file and its folder writable")


# ---- writing --------------------------------------------------------------------------------------


def _write(recipes: Sequence[Recipe], changes: Sequence[_Change]) -> None:
    """All files, or none: each is written aside before the first takes its place."""
    ready: list[tuple[Recipe, Path]] = []
    try:
        for recipe in recipes:
            own = [c for c in changes if c.recipe is recipe]
            if own:
                ready.append((recipe, _write_aside(recipe, own)))
        for recipe, _ in ready:
            if recipe.path.read_bytes() != recipe.data:
                raise LoadError(
                    "has been changed meanwhile; nothing was written", where=recipe.shown, hint="pin it again"
                )
        for recipe, aside in ready:
            aside.replace(recipe.path)
    except OSError as error:
        name = os.path.basename(str(error.filename or ""))
        raise LoadError(
            f"cannot write '{name}': {error.strerror}", hint="check space and permissions"
        ) from None
    finally:
        for _, aside in ready:
            aside.unlink(missing_ok=True)


def _write_aside(recipe: Recipe, changes: Sequence[_Change]) -> Path:
    for change in changes:
        recipe.edit.set(change.loose.path, change.answer.value, change.answer.note)
    data = recipe.edit.result()
    _must_fit(recipe, data)
    aside = recipe.path.with_name(f".{recipe.path.name}.part")
    aside.write_bytes(data)
    aside.chmod(recipe.path.stat().st_mode & 0o777)
    return aside


def _must_fit(recipe: Recipe, data: bytes) -> None:
    """Raises LoadError where the schema would not take what was looked up."""
    from pydantic import ValidationError

    from mxt.loading.recipe_yaml import parse_yaml

    try:
        recipe.module.Schema.model_validate(parse_yaml(data, recipe.shown).value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"]))
        raise LoadError(
            f"what was looked up for '{field}' does not fit: {first['msg']}", where=recipe.shown
        ) from None


# ---- showing --------------------------------------------------------------------------------------


def _show(recipes: Sequence[Recipe], changes: Sequence[_Change], *, would: bool) -> None:
    for recipe in recipes:
        own = [c for c in changes if c.recipe is recipe]
        if own:
            print(f"{recipe.shown}{' would change' if would else ''}")
        wide = max((len(c.field) for c in own), default=0)
        for c in own:
            old = "(not given)" if c.old is None else _text(c.old)
            about = f"  {c.answer.about}" if c.answer.about else ""
            line = recipe.edit.line(c.loose.path)
            new = _text(c.answer.value)
            print(_harmless(f"  {line:>4}  {c.field:<{wide}}  {old} -> {new}{about}"))


def _text(value: str | Sequence[str]) -> str:
    """A value as people see it: digests and lists shortened."""
    from mxt.words import SHOWN

    if isinstance(value, str):
        digest = len(value) in (40, 64) and all(c in "0123456789abcdef" for c in value)
        return value[:SHOWN] if digest else value
    listed = ", ".join(value)
    return listed if len(listed) <= LISTED or len(value) == 1 else f"{len(value)} files"


def _harmless(text: str) -> str:
    """Names come from elsewhere: what would move the cursor is shown as it is written."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _show_code(change: _Change, *, trusted: bool) -> None:
    allows = "allows" if trusted else "would allow"
    print(f"{change.recipe.place(change.loose.path)}: {change.field} {allows} this code to run:")
    for line in change.answer.consent:
        print(_harmless(f"  {line}"))
    if not trusted:
        print("  read it; then write its digest with --trust-code")


def _sum_up(
    recipes: Sequence[Recipe],
    due: Sequence[_Change],
    changes: Sequence[_Change],
    held: Sequence[_Change],
    *,
    would: bool,
) -> None:
    from mxt.words import plural

    if due:
        files = plural(len({c.recipe.shown for c in due}), "recipe")
        print(f"{plural(len(due), 'value')} in {files}{' would be' if would else ''} pinned")
    elif not changes:
        print(_all_pinned(recipes))
    elif all(c.same for c in changes):
        print(f"{plural(len(recipes), 'recipe')}: nothing has moved")
    if held and not would:
        left = dict.fromkeys(c.field for c in held)
        print(f"left as they are, until somebody has read the code: {', '.join(left)}")
