"""Evaluating an expression over the target graph: sets of labels, and orders to print them in."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Mapping
from typing import Any

from mxt.errors import UsageError, did_you_mean
from mxt.loading.pattern import parse_pattern
from mxt.loading.workspace import Workspace
from mxt.query.expression import FUNCTIONS, Call, Chain, Expression, Let, Set, Variable, Word, fail
from mxt.query.matching import TooLongError, searched
from mxt.query.targets import Targets
from mxt.words import ellipsis

Found = dict[str, None]  # a set that keeps the order in which things were found


class Evaluation:
    """Of one expression. text: as written, for errors.

    doubts: what is no error and hardly meant: names that nothing here has. In the order of evaluation.
    """

    def __init__(self, targets: Targets, workspace: Workspace, text: str) -> None:
        self.targets = targets
        self._workspace = workspace
        self._text = text
        self.doubts: dict[str, None] = {}

    def evaluate(self, tree: Expression, names: Mapping[str, Found] | None = None) -> Found:
        """The labels that the expression means. names: what `let` has named so far."""
        known = names or {}
        if isinstance(tree, Word):
            return self._pattern(tree)
        if isinstance(tree, Variable):
            if tree.name not in known:
                fail(self._text, tree.at, f"no 'let {tree.name} = ... in' stands before '${tree.name}'")
            return known[tree.name]
        if isinstance(tree, Set):
            return {label: None for word in tree.words for label in self._pattern(word)}
        if isinstance(tree, Let):
            return self.evaluate(tree.body, {**known, tree.name: self.evaluate(tree.value, known)})
        if isinstance(tree, Chain):
            return self._chain(tree, known)
        return self._call(tree, known)

    def _pattern(self, word: Word) -> Found:
        try:
            pattern = parse_pattern(word.text, self._workspace)
        except UsageError as error:
            fail(self._text, word.at, error.message, error.hint)
        if pattern.negative:
            fail(self._text, word.at, "a pattern cannot begin with '-'", "write EXPR - PATTERN")
        return dict.fromkeys(self.targets.matching(pattern))

    def _chain(self, tree: Chain, names: Mapping[str, Found]) -> Found:
        found = dict(self.evaluate(tree.first, names))
        for operator, term in tree.rest:
            other = self.evaluate(term, names)
            if operator == "+":
                found.update(other)
            elif operator == "-":
                for label in other:
                    found.pop(label, None)
            else:
                found = {label: None for label in found if label in other}
        return found

    def _call(self, call: Call, names: Mapping[str, Found]) -> Found:
        given: list[Any] = [
            a if isinstance(a, int) or kind == "w" else self.evaluate(a, names)
            for a, kind in zip(call.arguments, FUNCTIONS[call.function].kinds, strict=False)
        ]
        return getattr(self, f"_{call.function}")(*given)  # type: ignore[no-any-return]

    # ---- functions ----------------------------------------------------------------------------

    def _deps(self, starts: Found, depth: int | None = None) -> Found:
        return dict.fromkeys(self.targets.closure(starts, depth))

    def _rdeps(self, universe: Found, ends: Found, depth: int | None = None) -> Found:
        within = self.targets.closure(universe)
        return self._upwards(within, ends, depth)

    def _upwards(self, within: Iterable[str], ends: Found, depth: int | None = None) -> Found:
        readers: dict[str, list[str]] = {label: [] for label in within}
        for label in readers:
            for dep in self.targets.node(label).deps:
                readers[dep].append(label)
        found: Found = {label: None for label in ends if label in readers}
        frontier = list(found)
        distance = 0
        while frontier and (depth is None or distance < depth):
            distance += 1
            frontier = [r for r in dict.fromkeys(r for n in frontier for r in readers[n]) if r not in found]
            found.update(dict.fromkeys(frontier))
        return found

    def _allpaths(self, starts: Found, ends: Found) -> Found:
        return self._upwards(self.targets.closure(starts), ends)

    def _somepath(self, starts: Found, ends: Found) -> Found:
        """A shortest path, from its start on."""
        came: dict[str, str | None] = dict.fromkeys(starts)
        queue = list(came)
        for label in queue:  # grows while it is walked
            if label in ends:
                path = [label]
                while (before := came[path[-1]]) is not None:
                    path.append(before)
                return dict.fromkeys(reversed(path))
            for dep in self.targets.node(label).deps:
                if dep not in came:
                    came[dep] = label
                    queue.append(dep)
        return {}

    def _filter(self, regex: Word, given: Found) -> Found:
        labels = list(given)
        found = self._matching(regex, labels, labels)
        if not found:
            words = {word for label in labels for word in re.split("[^A-Za-z0-9]", label) if word}
            self._doubt_near(regex, words, "no label here contains")
        return found

    def _kind(self, regex: Word, given: Found) -> Found:
        kinds = [self.targets.node(label).kind for label in given]
        found = self._matching(regex, list(given), kinds)
        if not found:
            known = list(self.targets.kinds())
            if not any(self._searched(regex, known)):
                names = [kind.removesuffix(" rule") for kind in known]
                self._doubt(f"no kind matches '{regex.text}'{did_you_mean(_plain(regex), names)}")
        return found

    def _attr(self, name: Word, regex: Word, given: Found) -> Found:
        self._check_attribute(name, given)
        pairs = [
            (label, text) for label in given for text in attribute(self.targets.node(label).attrs, name.text)
        ]
        found = self._matching(regex, [label for label, _ in pairs], [text for _, text in pairs])
        if not found and name.text == "tags":
            tags = {str(t) for label in given for t in self.targets.node(label).attrs.get("tags") or ()}
            self._doubt_near(regex, tags, "nothing here has the tag")
        return found

    def _labels(self, name: Word, given: Found) -> Found:
        self._check_attribute(name, given)
        node = self.targets.node
        return {found: None for label in given for found in node(label).label_attrs.get(name.text, ())}

    def _some(self, given: Found, count: int = 1) -> Found:
        return dict.fromkeys(sorted(given)[:count])

    def _tests(self, given: Found) -> Found:
        """Tests among them, and among what bundles group."""
        node = self.targets.node
        seen: Found = {}
        stack = list(given)
        while stack:
            label = stack.pop()
            if label not in seen:
                seen[label] = None
                if node(label).kind == "bundle rule":
                    stack.extend(node(label).label_attrs.get("deps", ()))
        return {label: None for label in seen if self.targets.is_test(label)}

    # ---- regular expressions, and names that nothing has ---------------------------------------

    def _matching(self, regex: Word, labels: list[str], texts: list[str]) -> Found:
        """The labels whose text, at the same place in `texts`, the expression is found in."""
        return {label: None for label, yes in zip(labels, self._searched(regex, texts), strict=True) if yes}

    def _searched(self, word: Word, texts: list[str]) -> list[bool]:
        try:
            return searched(word.text, texts)
        except (re.error, RecursionError, OverflowError) as error:
            place = getattr(error, "pos", None) or 0
            quoted = self._text[word.at] in "\"'"
            fail(self._text, word.at + place + quoted, f"the regular expression is malformed: {error}")
        except TooLongError as error:
            fail(
                self._text,
                word.at,
                f"the regular expression takes too long on '{ellipsis(error.text, 60)}'",
                "a repetition inside a repetition, as in (a+)+, tries every way to divide a text: write a+",
            )

    def _check_attribute(self, name: Word, given: Found) -> None:
        kinds = dict.fromkeys(self.targets.node(label).kind for label in given)
        known = {attribute: None for kind in kinds for attribute in self.targets.attributes(kind)}
        if not known or name.text in known or any(_same_way(name.text, k) for k in known):
            return
        self._doubt(f"nothing here has an attribute '{name.text}'{did_you_mean(name.text, known)}")

    def _doubt_near(self, regex: Word, words: Iterable[str], text: str) -> None:
        """A doubt only where something similar is there: to find nothing is often what is hoped for."""
        plain = _plain(regex)
        near = did_you_mean(plain, sorted(words)) if re.fullmatch(r"[\w-]+", plain) else ""
        if near:
            self._doubt(f"{text} '{plain}'{near}")

    def _doubt(self, text: str) -> None:
        self.doubts[text] = None


def _plain(regex: Word) -> str:
    """The expression without anchors."""
    return regex.text.removeprefix("^").removesuffix("$").removeprefix("\\b").removesuffix("\\b")


def _same_way(asked: str, known: str) -> bool:
    """Whether one dotted name leads through the other."""
    return asked.startswith(f"{known}.") or known.startswith(f"{asked}.")


def attribute(attrs: Mapping[str, Any], name: str) -> list[str]:
    """The texts that `attr` looks at: one, or none where the attribute is not set.

    As in Bazel a list is "[a, b]", True "1" and False "0". A dotted name reaches into dictionaries.
    """
    value: Any = attrs
    if name in attrs:
        value = attrs[name]
    else:
        for part in name.split("."):
            if not isinstance(value, Mapping) or part not in value:
                return []
            value = value[part]
    return [] if value is None else [_text(value)]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_text(v) for v in value)}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k}: {_text(v)}" for k, v in value.items()) + "}"
    return str(value)


def in_order(targets: Targets, found: Found) -> list[str]:
    """Every label before what it needs; where that leaves a choice, by name. Cycles do not stop it."""
    edges = {label: [d for d in targets.node(label).deps if d in found] for label in found}
    waiting = dict.fromkeys(found, 0)
    for deps in edges.values():
        for dep in deps:
            waiting[dep] += 1
    ready = [label for label, count in waiting.items() if not count]
    heapq.heapify(ready)
    out: Found = {}
    while len(out) < len(found):
        if not ready:  # what is left lies on or below a cycle
            ready = [min(label for label in found if label not in out)]
        label = heapq.heappop(ready)
        if label in out:
            continue
        out[label] = None
        for dep in edges[label]:
            waiting[dep] -= 1
            if not waiting[dep]:
                heapq.heappush(ready, dep)
    return list(out)
