"""One command's view of a workspace: the store, the loader, and the way from labels to an action graph."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mxt.errors import GraphError, MxtError, UsageError
from mxt.loading.label_index import remember
from mxt.loading.workspace import Workspace, find_workspace

if TYPE_CHECKING:
    from mxt.action.action import ActionId
    from mxt.execution.build import ReceiptWriter
    from mxt.execution.runner import Found, Runner
    from mxt.graph.graph import ActionGraph
    from mxt.graph.rule_definition import RuleDefinition
    from mxt.graph.target import AnalysedTarget
    from mxt.loading.loader import Loader, Package
    from mxt.store.store import Store


class Session:
    """Opened lazily, part by part: a null build needs the workspace only."""

    def __init__(self, args: Namespace) -> None:
        self.args = args
        self.workspace: Workspace = find_workspace(
            root=getattr(args, "workspace", None), store=getattr(args, "store", None)
        )
        self.root = self.workspace.root
        self._definitions: dict[str, RuleDefinition] = {}
        self._loaded: dict[str, Package] = {}
        self.paths: dict[str, Any] = {}
        self.rule_files: dict[str, dict[str, bytes]] = {}

    @cached_property
    def store(self) -> Store:
        from mxt.store.store import Store

        return Store(self.workspace.store, keep_key_out_of=[self.root]).create()

    @cached_property
    def loader(self) -> Loader:
        from mxt.graph.core_rules import CORE_RULES
        from mxt.loading.loader import Loader
        from mxt.loading.rule_modules import find_rules

        return Loader(self.workspace, find_rules(self.workspace, CORE_RULES))

    def package(self, name: str) -> Package:
        """A package, and a note that it was read."""
        found = self._loaded.get(name)
        if found is None:
            found = self._loaded[name] = self.loader.package(name)
        return found

    def resolve(self, texts: Sequence[str], *, keep_manual: bool = False) -> list[str]:
        """Canonical labels for patterns, in order. Targets tagged "manual" match no wildcard.

        Raises UsageError for a malformed pattern, GraphError for one that matches nothing.
        """
        from mxt.loading.pattern import Kind, parse_patterns
        from mxt.loading.workspace import discover

        chosen: dict[str, None] = {}
        for pattern in parse_patterns(texts, self.workspace):
            if pattern.kind is Kind.TARGET:
                matched = [str(pattern.label)]
                if pattern.negative and pattern.name not in self.package(pattern.package).targets:
                    raise GraphError(
                        f"'{pattern}' takes away a target that does not exist",
                        hint="options stand before '--'",
                    )
            else:
                if pattern.kind is Kind.RECURSIVE:
                    found = discover(self.workspace, pattern.package)
                    self.paths.update(found.directories)
                    self.paths.update(found.files)
                    packages = found.packages
                else:
                    packages = [pattern.package]
                matched = []
                for name in packages:
                    package = self.package(name)
                    matched += [
                        f"//{name}:{raw.name}"
                        for raw in package.targets.values()
                        if keep_manual or "manual" not in (raw.attrs.get("tags") or ())
                    ]
                if not matched and not pattern.negative:
                    raise GraphError(
                        f"no targets match '{pattern}'",
                        hint="a package is a folder with an MXTBUILD that names targets",
                    )
            if pattern.negative:
                for label in matched:
                    chosen.pop(label, None)
            else:
                chosen.update(dict.fromkeys(matched))
        if not chosen:
            raise GraphError("no targets are left to build", hint="name at least one target")
        return list(chosen)

    def analyse(self, labels: Sequence[str]) -> ActionGraph:
        """The action graph of canonical labels."""
        from mxt.graph.analysis import Analysis
        from mxt.store.digest import hash_bytes

        analysis = Analysis(self.root, self, self.definition, self.slices, hash_bytes)
        try:
            graph = analysis.analyse(labels)
        except MxtError as error:
            self._show_line(error)
            raise
        remember(self.workspace.store, str(self.root), {n: p.targets for n, p in self._loaded.items()})
        return graph

    def _show_line(self, error: MxtError) -> None:
        """Add the line that an error of analysis is about; loading has done so for its own."""
        import re

        place = re.fullmatch(r"(.+):(\d+):(\d+)", error.where)
        if place is None or error.excerpt:
            return
        from mxt.loading.excerpt import excerpt

        try:
            source = (self.root / place[1]).read_text("utf-8", "replace")
        except OSError:
            return
        error.excerpt = excerpt(source, int(place[2]), int(place[3]))

    def slices(self, path: str, lines: int) -> list[tuple[int, int, str]]:
        self._watch(path)
        return [tuple(piece) for piece in self.store.index.slices(self.root / path, lines)]  # type: ignore[misc]

    def definition(self, name: str) -> RuleDefinition:
        """The Python rule called `name`, imported at its first use."""
        found = self._definitions.get(name)
        if found is None:
            from mxt.graph.core_rules import CORE_RULES
            from mxt.graph.rule_definition import RuleDefinition
            from mxt.loading.rule_modules import Origin, find_rules, import_rule
            from mxt.loading.trust import rule_contents, trust_file
            from mxt.store.digest import hash_bytes

            sources = find_rules(self.workspace, CORE_RULES)
            if name not in sources:
                raise UsageError(f"unknown rule '{name}'")
            source = sources[name]
            own = source.origin is Origin.WORKSPACE
            contents: dict[str, bytes] = {}
            if own:
                assert source.path is not None
                self._watch(
                    str(trust_file()),
                    *(os.path.relpath(p, self.root) for p in source.path.parent.rglob("*.py")),
                )
                contents = rule_contents(source.path.parent)
            module = import_rule(source, self.workspace, contents=contents if own else None)
            if own and source.path is not None:
                contents = self._rule_files(source.path, contents, tuple(getattr(module, "DATA", ())))
                self.rule_files[name] = contents

            def digest(_: tuple[str, ...]) -> str:
                """Of the rule's module, what it imports from its folder, and its declared data."""
                listing = "".join(f"{path} {hash_bytes(data)}\n" for path, data in sorted(contents.items()))
                return str(hash_bytes(listing.encode()))

            found = RuleDefinition.of(name, module, digest)
            self._definitions[name] = found
        return found

    def _rule_files(
        self, module: Path, contents: Mapping[str, bytes], data: Sequence[str]
    ) -> dict[str, bytes]:
        """What a workspace's rule consists of: exactly this is keyed, and exactly this its process sees."""
        from mxt.loading.rule_closure import rule_closure

        files = {path: contents[path] for path in rule_closure(module.stem, contents)}
        for name in data:
            path = f"rules/{name}"
            self._watch(path)
            try:
                files[path] = (module.parent / name).read_bytes()
            except OSError as error:
                raise UsageError(
                    f"rule '{module.stem}' declares the data file '{name}': {error.strerror}",
                    where=str(module),
                ) from None
        return files

    def _watch(self, *paths: str) -> None:
        """Note the stat tuples of files that are about to be read."""
        from mxt.loading.reads import stat_of

        for path in paths:
            self.paths.setdefault(path, stat_of(os.path.join(self.root, path)))

    def looked_at(self) -> dict[str, Any]:
        """Every path that loading and analysis depended on, with its stat tuple from before it was read."""
        found: dict[str, Any] = {}
        for package in self._loaded.values():
            found.update(package.reads.everything())
        found.update(self.paths)
        return found

    def runner(self, graph: ActionGraph) -> Runner:
        """A runner that only finds, for -n and explain: sources are hashed, nothing is started."""
        from mxt.execution.environment import Environments
        from mxt.execution.runner import Runner
        from mxt.execution.sources import Sources

        sources = Sources(self.root, self.store)
        sources.prepare(graph.sources())
        folder = self.store.layout.root / "toolchains"
        environments = Environments(
            self.root, folder, graph.toolchains, graph.platforms, {}, images=graph.images
        )
        return Runner(self.root, self.store, graph, sources, environments)

    def write_receipt(self, graph: ActionGraph, identity: str) -> ReceiptWriter:
        """What a build calls for each bundle that gets a receipt. identity: of this build."""
        from datetime import UTC, datetime

        began = datetime.now(UTC)

        def write(target: AnalysedTarget, path: Path, results: Mapping[ActionId, Found]) -> Path:
            from mxt.receipt.statement import Built, BuiltAction, Invocation
            from mxt.receipt.write import write_receipt

            actions = []
            for step in graph.closure(graph.below(target)):
                found = results[step]
                assert found.realisation is not None
                actions.append(BuiltAction.of(graph.actions[step], found.key, found.realisation))
            built = Built(
                target.label,
                actions,
                recipe=target.facts.get("recipe") or None,
                toolchains=graph.toolchains,
                platforms=graph.platforms,
            )
            times = (
                t.isoformat(timespec="milliseconds").replace("+00:00", "Z")
                for t in (began, datetime.now(UTC))
            )
            invocation = Invocation(identity, *times)
            cache, key = self.store.actions, self.store.key
            written = write_receipt(path, built, invocation, workspace=self.root, cache=cache, key=key)
            self._keep_report(written.path, written.digest)
            return written.path

        return write

    def _keep_report(self, receipt: Path, digest: str) -> None:
        """The page beside the receipt. What was built is whole without it, so its failure is a warning."""
        from mxt.cli.terminal import warn
        from mxt.graph.snapshot import engine_identity
        from mxt.pages.report_file import keep_report

        try:
            keep_report(
                receipt, digest, workspace=self.root, cache=self.store.actions, engine=engine_identity()
            )
        except Exception as error:  # noqa: BLE001 - whatever it is, hours of work are done and recorded
            text = error.message if isinstance(error, MxtError) else f"{type(error).__name__}: {error}"
            warn(f"no report beside {os.path.relpath(receipt, self.root)}: {text}; 'mxt report' writes it")

    def make_folders(self) -> None:
        """cache/ and mxt-out/, before anything is looked at: made later they would change the root folder."""
        for folder in (self.workspace.store, self.root / "mxt-out"):
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise UsageError(
                    f"cannot make the folder: {error.strerror}",
                    where=str(folder),
                    hint="make the workspace writable, or choose another place with --store",
                ) from None
