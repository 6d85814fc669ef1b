"""mxt complete: what a shell may offer for the word under the cursor. Hidden: the shells' scripts call it.

    mxt complete WORD...    the words behind `mxt` up to the cursor; the last is the one to complete

Prints a candidate a line, those that want no space behind them ending in ":", "/" or "="; a line
"<TAB>files" or "<TAB>folders" asks the shell for its own. Loads no package, evaluates nothing and imports
next to nothing: the names come from an index that builds leave (mxt/loading/label_index.py).
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Action, ArgumentParser
    from collections.abc import Iterable, Sequence

# of these verbs every word that is no option is a label: known without argparse, which costs 8 ms
LABEL_VERBS = frozenset({"build", "test", "run", "explain", "doctor", "log"})
_BUILDS = 10  # so many are offered
FILES, FOLDERS = "\tfiles", "\tfolders"


def complete(words: Sequence[str]) -> int:
    """Print the candidates; always 0, whatever is wrong: a shell shows no errors while one types."""
    try:
        found = candidates(list(words) or [""])
        sys.stdout.write("".join(f"{line}\n" for line in found if "\n" not in line))
    except Exception:
        if os.environ.get("MXT_DEBUG"):
            raise
    return 0


def candidates(words: Sequence[str]) -> list[str]:
    """What may stand in the place of the last word."""
    from mxt.cli.verbs import VERBS

    current = words[-1]
    if len(words) == 1:
        names = [*VERBS, "--help", "--version"]
        return [n for n in names if n.startswith(current) and (current or not n.startswith("-"))]
    verb, before = words[0], words[1:-1]
    if verb == "help" or verb not in VERBS:
        return []
    options = "--" not in before
    _named_places(before)
    plain = not current.startswith("-") and not (options and before and before[-1].startswith("-"))
    second = options and before[-2:-1] == ["--between"]  # the one option with two words
    if verb in LABEL_VERBS and (plain or not options) and not second:
        return label_candidates(current)
    return _by_parser(_parser(verb), before, current, options=options)


def _named_places(before: Sequence[str]) -> None:
    """Labels come from another workspace or store that the line names, as if the environment named it."""
    for option, variable in (("--workspace", "MXT_WORKSPACE"), ("--store", "MXT_STORE")):
        for number, word in enumerate(before):
            if word == option and number + 1 < len(before):
                os.environ[variable] = before[number + 1]
            elif word.startswith(f"{option}="):
                os.environ[variable] = word.partition("=")[2]


# ---- options and what is no label -------------------------------------------------------------------


def _parser(verb: str) -> ArgumentParser:
    from argparse import ArgumentParser
    from importlib import import_module

    parser = ArgumentParser(allow_abbrev=False)
    import_module(f"mxt.cli.{verb}").add_arguments(parser)
    return parser


def _by_parser(parser: ArgumentParser, before: Sequence[str], current: str, *, options: bool) -> list[str]:
    by_name = {name: action for action in parser._actions for name in action.option_strings}
    name, equals, value = current.partition("=")
    if options and equals and name in by_name:
        return [f"{name}={v}" if v[0] != "\t" else v for v in _values(by_name[name], value)]
    taken = by_name.get(before[-1]) if options and before else None
    if options and (pair := by_name.get("".join(before[-2:-1]))) is not None and pair.nargs == 2:
        taken = pair
    if taken is not None and taken.nargs != 0:
        return _values(taken, current)
    if options and current.startswith("-"):
        there = set(before)
        repeated = {n for n, a in by_name.items() if type(a).__name__ == "_AppendAction"}
        used = {n for n, a in by_name.items() if n not in repeated and there & set(a.option_strings)}
        long = sorted(n for n in by_name if n.startswith("--") and n not in used)
        found = [n for n in long if n.startswith(current)]
        # a negative pattern is a label behind "--" only
        return found or ([current] if current in by_name else [])
    positionals = [a for a in parser._actions if not a.option_strings]
    given = _positionals_before(by_name, before)
    for number, action in enumerate(positionals):
        if number == given or (number <= given and action.nargs in ("+", "*")):
            return _values(action, current)
    return []


def _positionals_before(by_name: dict[str, Action], before: Iterable[str]) -> int:
    count, skip, only = 0, False, False
    for word in before:
        if skip:
            skip = False
        elif word == "--":
            only = True
        elif word.startswith("-") and not only:
            action = by_name.get(word)
            skip = action is not None and action.nargs != 0
        else:
            count += 1
    return count


def _values(action: Action, current: str) -> list[str]:
    """What an option or a position may hold, by its choices or by what its help calls it."""
    if action.choices is not None:
        return [str(c) for c in action.choices if str(c).startswith(current)]
    metavar = action.metavar[0] if isinstance(action.metavar, tuple) else str(action.metavar or "")
    if metavar in ("DIR", "FOLDER"):
        return [FOLDERS]
    if metavar == "FILE":
        return [FILES]
    if metavar in ("RECEIPT", "RECIPE"):
        return [*label_candidates(current), FILES] if current[:1] in ("", "/", ":") else [FILES]
    if metavar in ("LABEL", "EXPR"):
        return label_candidates(current)
    if metavar == "OLD":
        return _builds(current)
    if metavar == "PLAN":
        return [*(label_candidates(current) if current[:1] in ("", "/", ":") else _builds(current)), FILES]
    if "--recipe" in action.option_strings:
        from mxt.loading.rule_modules import builtin_module

        return [name for name in builtin_module("starters").starters() if name.startswith(current)]
    return []


def _builds(current: str) -> list[str]:
    """Words for the newest builds: by their order, and by identity once one begins to type it."""
    place = _workspace()
    if place is None:
        return []
    try:
        names = sorted(os.listdir(f"{place[1]}/state/builds"), reverse=True)[:_BUILDS]
    except OSError:
        return []
    words = ["last", *(f"last~{n}" for n in range(1, len(names)))] if names else []
    identities = [name.removesuffix(".json").rpartition("-")[2] for name in names] if current else []
    return [word for word in [*words, *identities] if word.startswith(current)]


# ---- labels -----------------------------------------------------------------------------------------


def label_candidates(text: str) -> list[str]:
    """Packages a folder at a time, then the targets of one; each begins with what was typed."""
    place = _workspace()
    if place is None:
        return []
    root, store, below = place
    from mxt.loading.label_index import index_file, read_index

    index = read_index(index_file(store))
    minus = "-" if text.startswith("-") else ""
    body = text[len(minus) :]
    absolute = body.startswith("//")
    base = "" if absolute or not below else below + "/"
    if body == "" and not below:
        body, absolute = "//", True
    elif body == "":
        return [
            f"{minus}//",
            *(f"{minus}:{n}" for n in _targets(_package_of(below, index, root), index, root, "")),
        ]
    typed = body[2:] if absolute else body
    shown = minus + ("//" if absolute else "")
    package, colon, name = typed.partition(":")
    if colon:
        full = (base + package).strip("/") if package or absolute else _package_of(below, index, root)
        return [f"{shown}{package}:{n}" for n in _targets(full, index, root, name)]
    found = _segments(typed, base, index, root)
    if found == [f"{typed}:"] or (len(found) == 1 and found[0].endswith(":")):
        only = found[0][:-1]
        return [f"{shown}{only}:{n}" for n in _targets((base + only).strip("/"), index, root, "")] or [
            shown + found[0]
        ]
    found = [shown + one for one in found]
    if not absolute and "/" not in typed:
        own = _package_of(below, index, root)
        found += [f"{minus}{n}" for n in _targets(own, index, root, typed, wildcard=False) if typed]
    return found


def _workspace() -> tuple[str, str, str] | None:
    """The root, the store, and the current folder below the root ("" for the root or a place outside)."""
    from mxt.loading.root import MXTBUILD, search_root

    try:
        here = os.path.realpath(os.getcwd())
        if chosen := os.environ.get("MXT_WORKSPACE"):
            root: str | None = os.path.realpath(os.path.expanduser(chosen))
            if not os.path.isfile(f"{root}/{MXTBUILD}"):
                return None
        else:
            root = search_root(here)
    except OSError:
        return None
    if root is None:
        return None
    inside = here.startswith(root.rstrip("/") + "/")
    store = os.environ.get("MXT_STORE")
    return (
        root,
        os.path.abspath(store) if store else f"{root}/cache",
        os.path.relpath(here, root) if inside else "",
    )


def _segments(typed: str, base: str, index: dict[str, str], root: str) -> list[str]:
    """The next folder of each package that begins with what was typed: "a/b:" is one, "a/b/" holds more."""
    above, _, part = typed.rpartition("/")
    above = f"{above}/" if above or typed.startswith("/") else ""
    prefix = base + above
    packages: dict[str, None] = {}
    below: dict[str, None] = {}
    for package in index:
        if not package.startswith(prefix):
            continue
        head, slash, _ = package[len(prefix) :].partition("/")
        if head and head.startswith(part):
            (below if slash else packages)[head] = None
    # packages that no build has seen yet, in this folder only
    try:
        with os.scandir(f"{root}/{prefix}") as entries:
            for entry in entries:
                name = entry.name
                if (
                    name.startswith(part)
                    and name[0] != "."
                    and name not in packages
                    and (prefix or name not in ("cache", "mxt-out"))
                    and os.path.isfile(f"{entry.path}/MXTBUILD")
                ):
                    packages[name] = None
    except OSError:
        pass
    found = [f"{above}{name}:" for name in sorted(packages)]
    found += [f"{above}{name}/" for name in sorted(below)]
    if part == "" and above == "" and not base and os.path.isfile(f"{root}/MXTBUILD"):
        found.insert(0, ":")
    if "...".startswith(part) and (len(found) > 1 or part):
        found.append(f"{above}...")
    return found


def _targets(
    package: str, index: dict[str, str], root: str, part: str, *, wildcard: bool = True
) -> list[str]:
    """The package's targets that begin with `part`, and the word for all of them."""
    names = dict.fromkeys(index[package].split("\t")) if index.get(package) else {}
    if package not in index:
        names.update(dict.fromkeys(_written(f"{root}/{package}/MXTBUILD")))
    found = sorted(n for n in names if n and n.startswith(part))
    return [*found, "all"] if wildcard and len(found) > 1 and "all".startswith(part) else found


def _written(build_file: str) -> list[str]:
    """Names as they stand in an MXTBUILD that no build has loaded yet; what macros make is not there."""
    import re

    try:
        with open(build_file, encoding="utf-8", errors="replace") as file:
            text = file.read(1 << 20)
    except OSError:
        return []
    found = re.findall(r"""(?:^\s*|\()name\s*=\s*["']([^"'\n]+)["']""", text, re.MULTILINE)
    return [str(name) for name in found]


def _package_of(below: str, index: dict[str, str], root: str) -> str:
    """The package that the current folder lies in."""
    while below and below not in index and not os.path.isfile(f"{root}/{below}/MXTBUILD"):
        below = below.rpartition("/")[0]
    return below
