"""The target graph as loading sees it: rule targets, the files that genrules make, sources. Runs no rule.

Edges are what the attributes name: `srcs`, `tools`, `deps`, every attribute that a Python rule marks as a
label, a bundle's `recipe`, a toolchain's `lock`; and, unless left out, `toolchain` and `platform`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from mxt.errors import GraphError, did_you_mean
from mxt.graph.core_rules import COMMON, CORE_RULES, LABEL_LISTS
from mxt.loading.label import Label
from mxt.loading.pattern import Kind, Pattern

TOOLS = ("toolchain", "platform")
SOURCE, FOLDER, MISSING, GENERATED = "source file", "source folder", "missing file", "generated file"
_FILES = {"bundle": ("recipe",), "toolchain": ("lock",)}


class Packages(Protocol):
    """What queries need of a session."""

    root: Any

    def package(self, name: str) -> Any: ...

    def definition(self, name: str) -> Any: ...

    def rules(self) -> Iterable[str]: ...

    def packages_below(self, folder: str) -> list[str]: ...


@dataclass(slots=True)
class Node:
    """kind: "genrule rule", "source file", "source folder", "missing file", "generated file".

    where: file:line:column of a rule's call. attrs: as written, labels in full; of a recipe what the rule
    declares. label_attrs: those of them that hold labels. deps: labels, in order of the attributes, each
    once.
    """

    label: str
    kind: str
    where: str = ""
    attrs: Mapping[str, Any] = field(default_factory=dict)
    label_attrs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    deps: tuple[str, ...] = ()


class Targets:
    """Nodes by label, made when they are asked for. tools: whether toolchains and platforms are edges."""

    def __init__(self, packages: Packages, *, tools: bool = True) -> None:
        self._packages = packages
        self._tools = tools
        self._root = os.fspath(packages.root)
        self._nodes: dict[str, Node] = {}
        self._made: dict[str, dict[str, str]] = {}
        self._labels: dict[tuple[str, str], str] = {}

    def node(self, label: str) -> Node:
        """The node of a canonical label that something names: a target, else a file, there or not."""
        found = self._nodes.get(label)
        if found is None:
            found = self._nodes[label] = self._make(label)
        return found

    def matching(self, pattern: Pattern) -> list[str]:
        """Labels that a pattern means, in a fixed order: all rules, also "manual" ones; ":*" files, too.

        Raises GraphError for a single target that is neither a target nor a file.
        """
        if pattern.kind is Kind.TARGET:
            label = str(pattern.label)
            if self.node(label).kind == MISSING:
                raise self._unknown(pattern)
            return [label]
        if pattern.kind is Kind.RECURSIVE:
            names = self._packages.packages_below(pattern.package)
        else:
            names = [pattern.package]
        files = pattern.text.endswith((":*", ":all-targets"))
        found: dict[str, None] = {}
        for name in names:
            for target in self._packages.package(name).targets:
                label = f"//{name}:{target}"
                found[label] = None
                if files:
                    found.update((d, None) for d in self.node(label).deps if d.startswith(f"//{name}:"))
            if files:
                found.update((f"//{name}:{out}", None) for out in self._outputs(name))
        if not found:
            raise GraphError(
                f"no targets match '{pattern}'",
                hint="a package is a folder with an MXTBUILD that names targets",
            )
        return list(found)

    def is_test(self, label: str) -> bool:
        rule = self.node(label).kind.removesuffix(" rule")
        if self.node(label).kind == rule or rule in CORE_RULES:
            return False
        return bool(self._packages.definition(rule).test)

    def kinds(self) -> list[str]:
        """Every kind that a node of this workspace may have."""
        return [*(f"{rule} rule" for rule in self._packages.rules()), SOURCE, FOLDER, MISSING, GENERATED]

    def attributes(self, kind: str) -> list[str]:
        """What a rule's targets may have: attributes, and of a recipe the fields declared, by dotted name.

        An attribute that holds a recipe is named by these fields alone.
        """
        rule = kind.removesuffix(" rule")
        if rule == kind:
            return []
        if rule in CORE_RULES:
            return ["name", *COMMON, *CORE_RULES[rule][0]]
        definition = self._packages.definition(rule)
        plain = [name for name in definition.attrs.model_fields if name not in definition.configs]
        fields = [f"{c}.{f}" for c in definition.configs for f in (*definition.keyed, *definition.unkeyed)]
        return ["name", *COMMON, *plain, *fields]

    def closure(self, starts: Iterable[str], depth: int | None = None) -> dict[str, int]:
        """Everything the starts need, with its distance; they themselves are at 0."""
        found = dict.fromkeys(starts, 0)
        frontier = list(found)
        distance = 0
        while frontier and (depth is None or distance < depth):
            distance += 1
            following: list[str] = []
            for label in frontier:
                for dep in self.node(label).deps:
                    if dep not in found:
                        found[dep] = distance
                        following.append(dep)
            frontier = following
        return found

    # ---- making nodes -------------------------------------------------------------------------

    def _make(self, label: str) -> Node:
        package, _, name = label.removeprefix("//").rpartition(":")
        raw = self._packages.package(package).targets.get(name)
        if raw is not None:
            return self._rule(label, package, raw)
        maker = self._outputs(package).get(name)
        if maker is not None:
            return Node(
                label, GENERATED, self.node(f"//{package}:{maker}").where, deps=(f"//{package}:{maker}",)
            )
        try:
            mode = os.stat(f"{self._root}/{package}/{name}").st_mode
        except OSError:
            return Node(label, MISSING)
        return Node(label, FOLDER if stat.S_ISDIR(mode) else SOURCE)

    def _outputs(self, package: str) -> dict[str, str]:
        """The files that the genrules of a package declare -> their genrule."""
        found = self._made.get(package)
        if found is None:
            targets = self._packages.package(package).targets
            found = self._made[package] = {
                out: raw.name
                for raw in targets.values()
                if raw.rule == "genrule"
                for out in raw.attrs.get("outs") or ()
                if isinstance(out, str) and out not in targets
            }
        return found

    def _rule(self, label: str, package: str, raw: Any) -> Node:
        names = LABEL_LISTS.get(raw.rule, ()) if raw.rule in CORE_RULES else self._marked(raw.rule)
        names = (*names, *_FILES.get(raw.rule, ()), *(t for t in TOOLS if t != raw.rule))
        labels: dict[str, tuple[str, ...]] = {}
        for name in names:
            texts = _texts(raw.attrs.get(name))
            if texts:
                labels[name] = tuple(self._full(text, package, raw.where) for text in texts)
        deps = dict.fromkeys(d for n, found in labels.items() if self._tools or n not in TOOLS for d in found)
        deps.pop(label, None)
        attrs = {"name": raw.name, **raw.attrs}
        for name, found in labels.items():
            if isinstance(attrs[name], (str, list)):
                attrs[name] = found[0] if isinstance(attrs[name], str) else list(found)
        if raw.rule not in CORE_RULES:
            definition = self._packages.definition(raw.rule)
            for name in definition.configs:
                if isinstance(attrs.get(name), Mapping):
                    attrs[name] = _declared(attrs[name], (*definition.keyed, *definition.unkeyed))
        return Node(label, f"{raw.rule} rule", raw.where, attrs, labels, tuple(deps))

    def _marked(self, rule: str) -> Sequence[str]:
        found: Sequence[str] = self._packages.definition(rule).labels
        return found

    def _full(self, text: str, package: str, where: str) -> str:
        """A label in full, without the '#output' that a reader may have chosen."""
        known = self._labels.get((package, text))
        if known is None:
            known = str(Label.parse(text.partition("#")[0], package, where=where))
            self._labels[package, text] = known
        return known

    def _unknown(self, pattern: Pattern) -> GraphError:
        names = [*self._packages.package(pattern.package).targets, *self._outputs(pattern.package)]
        some = ", ".join(sorted(names)[:8]) + (f", ... ({len(names)})" if len(names) > 8 else "")
        return GraphError(
            f"no target or file '{pattern.label}'{did_you_mean(pattern.name, names)}",
            hint=f"targets of //{pattern.package}: {some}"
            if names
            else f"//{pattern.package} has no targets",
        )


def _declared(recipe: Mapping[str, Any], fields: Iterable[str]) -> dict[str, Any]:
    """Of a recipe what a rule declares: another field is none of its business, and changes nothing of it."""
    out: dict[str, Any] = {}
    for name in sorted(fields, key=len, reverse=True):  # a whole section after single fields of it
        *sections, last = name.split(".")
        value: Any = recipe
        for part in sections:
            value = value.get(part) if isinstance(value, Mapping) else None
        if isinstance(value, Mapping) and last in value:
            into = out
            for part in sections:
                into = into.setdefault(part, {})
            into[last] = value[last]
    return out


def _texts(value: Any) -> list[str]:
    """The labels in an attribute; what is of a wrong type is the build's to complain about."""
    if isinstance(value, str):
        return [value] if value else []
    if isinstance(value, Mapping):
        value = value.values()
    if isinstance(value, Iterable):
        return [v for v in value if isinstance(v, str) and v]
    return []
