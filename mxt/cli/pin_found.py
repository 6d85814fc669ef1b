"""Which recipes `mxt pin` means: by their files, or by targets that were made from them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mxt.errors import LoadError, UsageError, did_you_mean
from mxt.loading.label import Label
from mxt.loading.recipe_edit import RecipeEdit

if TYPE_CHECKING:
    from types import ModuleType

    from mxt.cli.session import Session
    from mxt.pins import Loose

SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True)
class Recipe:
    """shown: its path in the workspace. path: where it lies, links followed. data: its bytes when read.
    folder: that of the package that reads it, which its paths are relative to.

    values: validated, with all defaults. overridden: fields that every target made from it takes from its
    macro. module: its schema's.
    """

    shown: str
    path: Path
    data: bytes
    folder: Path
    values: Mapping[str, Any]
    overridden: frozenset[str]
    module: ModuleType

    @cached_property
    def edit(self) -> RecipeEdit:
        return RecipeEdit(self.data, self.shown)

    def loose(self, *, moving: bool) -> list[Loose]:
        """Its loose values. moving: also those that were pinned earlier, by a name that a comment tells."""
        find: Callable[..., list[Loose]] | None = getattr(self.module, "loose", None)
        note = self.edit.note if moving else lambda _: None
        found = find(self.values, note, self.folder) if find else []
        return [one for one in found if ".".join(one.path) not in self.overridden]

    def out_of_reach(self) -> list[str]:
        """Loose fields that a macro sets, not the file."""
        find: Callable[..., list[Loose]] | None = getattr(self.module, "loose", None)
        found = find(self.values, lambda _: None, self.folder) if find else []
        return [".".join(one.path) for one in found if ".".join(one.path) in self.overridden]

    def place(self, path: tuple[str, ...]) -> str:
        """file:line of a value."""
        return f"{self.shown}:{self.edit.line(path)}"


def find_recipes(session: Session, texts: Sequence[str]) -> list[Recipe]:
    """The recipes that are meant, each once, in order.

    Raises UsageError for a file that no package reads and where there is no recipe at all, LoadError for a
    target whose recipe stands in no file.
    """
    found: dict[tuple[str, str], None] = {}
    known = _Known(session)
    for text in texts:
        if text.endswith(SUFFIXES):
            found[_of_file(session, text)] = None
            continue
        one = ":" in text and not text.endswith((":all", ":*", ":all-targets"))
        for label in session.resolve([text], keep_manual=True):
            below = dict.fromkeys(_of_target(session, known, label, {}))
            if one and not below:
                raise UsageError(f"'{label}' is made from no recipe", hint="name a recipe's YAML file")
            found.update(below)
    if not found:
        raise UsageError("there is no recipe", hint="name a recipe's YAML file, or a target made from one")
    session.loader.close()
    return [_read(session, label, schema) for label, schema in found]


def _of_file(session: Session, text: str) -> tuple[str, str]:
    """The one file that is meant: a label, or a path from here or from the root."""
    workspace = session.workspace
    if text.startswith("//"):
        label = Label.parse(text, error=UsageError)
    else:
        path = Path(text)
        full = path if path.is_file() else session.root / path
        if not full.is_file():
            folder = full.parent
            names = [n for n in os.listdir(folder) if n.endswith(SUFFIXES)] if folder.is_dir() else []
            raise UsageError(f"there is no file '{text}'{did_you_mean(full.name, names)}")
        folder = Path(os.path.realpath(full.parent))
        package = workspace.package_of(folder)
        try:
            label = Label(package, (folder / full.name).relative_to(session.root / package).as_posix())
        except ValueError:
            raise UsageError(f"'{text}' lies outside of the workspace", where=str(session.root)) from None
    session.package(label.package)
    for config in session.loader.configs():
        if config.label == str(label):
            return config.label, config.schema
    build = f"{label.package}/MXTBUILD".lstrip("/")
    raise UsageError(
        f"nothing in {build} reads '{label.path}' as a recipe",
        hint=f'declare it there, as in finetune(name = "...", recipe = "{label.name}")',
    )


class _Known:
    """The recipes that were read so far, to be found by what they say: there may be thousands of targets."""

    def __init__(self, session: Session) -> None:
        self._loader = session.loader
        self._count = -1
        self._by_values: dict[str, tuple[str, str]] = {}
        self._by_label: dict[str, tuple[str, str]] = {}
        self._shapes: set[frozenset[str]] = set()

    def _look(self) -> None:
        configs = self._loader.configs() if self._loader.config_count() != self._count else []
        for c in configs:
            self._by_values.setdefault(json.dumps(c.values, sort_keys=True), (c.label, c.schema))
            self._by_label.setdefault(c.label, (c.label, c.schema))
            self._shapes.add(frozenset(c.values))
        self._count = self._loader.config_count()

    def of_file(self, label: str) -> tuple[str, str] | None:
        self._look()
        return self._by_label.get(label)

    def of_values(self, values: Mapping[str, Any]) -> tuple[str, str] | None:
        self._look()
        return self._by_values.get(json.dumps(values, sort_keys=True))

    def looks_like_one(self, values: Mapping[str, Any]) -> bool:
        return frozenset(values) in self._shapes


def _of_target(session: Session, known: _Known, label: str, seen: dict[str, None]) -> list[tuple[str, str]]:
    """The recipes of a target and, for a bundle, of what it groups."""
    seen[label] = None
    package, _, name = label.removeprefix("//").partition(":")
    raw = session.package(package).targets.get(name)
    if raw is None:
        names = session.package(package).targets
        raise UsageError(f"there is no target '{label}'{did_you_mean(name, names)}")
    if raw.rule == "bundle":
        named = raw.attrs.get("recipe")
        if named:
            file = known.of_file(str(Label.parse(named, package)))
            return [file] if file else []
        deps = [str(Label.parse(d.partition("#")[0], package)) for d in raw.attrs.get("deps", ())]
        return [key for d in deps if d not in seen for key in _of_target(session, known, d, seen)]
    found = []
    for value in raw.attrs.values():
        if isinstance(value, dict):
            same = known.of_values(value)
            found += [same] if same else []
            if not same and known.looks_like_one(value):
                raise LoadError(
                    f"the recipe of '{label}' comes from a macro: its values stand in no file",
                    where=raw.where,
                    hint="name the YAML file that it was made from: mxt pin FILE",
                )
    return found


def _read(session: Session, label: str, schema: str) -> Recipe:
    from mxt.loading.rule_modules import find_schema, import_rule

    shown = Label.parse(label).path
    path = Path(os.path.realpath(session.root / shown))
    try:
        data = path.read_bytes()
    except OSError as error:
        raise LoadError(f"cannot read '{shown}': {error.strerror}", where=shown) from None
    source = find_schema(session.workspace, schema)
    assert source is not None  # it was loaded with it
    module = import_rule(source, session.workspace)
    read = [c for c in session.loader.configs() if (c.label, c.schema) == (label, schema)]
    values = min(read, key=lambda c: len(c.overrides)).values
    overridden = frozenset.intersection(*(frozenset(c.overrides) for c in read))
    own = Label.parse(label).package
    folder = session.root / (own if own in {c.package for c in read} else read[0].package)
    return Recipe(shown, path, data, folder, values, overridden, module)
