"""From labels to the action graph: resolves labels, runs each rule once, finds cycles and collisions."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from mxt.action.action import Action, SliceRef, SourceRef
from mxt.errors import GraphError, LoadError, MxtError, did_you_mean
from mxt.graph.core_rules import CORE_RULES, LABEL_LISTS, check_attributes, check_type
from mxt.graph.genrule import genrule_action, place_of
from mxt.graph.graph import ActionGraph
from mxt.graph.rule_definition import RuleDefinition
from mxt.graph.target import AnalysedTarget, Handle, Target, basename, choose_output, output_handle
from mxt.loading.label import Label
from mxt.loading.reads import stat_of

if TYPE_CHECKING:
    from mxt.action.image import Image


class RawTarget(Protocol):
    """A call of a rule in an MXTBUILD, as loading recorded it."""

    rule: str
    name: str
    attrs: Mapping[str, Any]
    where: str


class Package(Protocol):
    """A loaded package."""

    name: str
    targets: Mapping[str, Any]


class Packages(Protocol):
    """What analysis needs of loading."""

    def package(self, name: str) -> Any: ...


SliceFinder = Callable[[str, int], Sequence[tuple[int, int, str]]]
RuleFinder = Callable[[str], RuleDefinition]


class Analysis:
    """Analyses targets into one ActionGraph.

    root: the workspace. packages: loads them. rules: finds a Python rule by name. slices: cuts a
    source file into (offset, length, digest) pieces of N lines. digest: BLAKE3 of a small file.
    """

    def __init__(
        self,
        root: Path,
        packages: Packages,
        rules: RuleFinder,
        slices: SliceFinder,
        digest: Callable[[bytes], str],
    ) -> None:
        self.root = root
        self._root_text = str(root)
        self._real_folders: dict[str, str] = {}
        self._real_root = os.path.realpath(root).rstrip("/") + "/"
        self.graph = ActionGraph()
        self._packages = packages
        self._rules = rules
        self._slices = slices
        self._digest = digest
        self._handles: dict[str, tuple[Handle, ...]] = {}
        self._labels: dict[tuple[str, str], str] = {}
        self._generated: dict[str, dict[str, str]] = {}
        self._no_packages: set[str] = set()  # folders that sources lie in, each looked at once

    def analyse(self, labels: Iterable[str]) -> ActionGraph:
        """Analyse canonical labels and all that they need.

        Raises GraphError for missing labels, cycles and colliding outputs; LoadError for bad attributes.
        """
        requested = tuple(dict.fromkeys(labels))
        for label in requested:
            self._visit(label)
        self.graph.requested = tuple(
            label for label in dict.fromkeys(self._owner(r) for r in requested) if label in self.graph.targets
        )
        self._check_places()
        return self.graph

    def _check_places(self) -> None:
        """Raises GraphError where one target's place in mxt-out is a folder above another's."""
        places: dict[str, AnalysedTarget] = {}
        for target in self.graph.wanted():
            if target.actions or target.members:
                package, _, name = target.label.rpartition(":")
                places[place_of(package[2:], name)] = target
        for place, target in places.items():
            parts = place.split("/")
            for count in range(2, len(parts)):
                above = places.get("/".join(parts[:count]))
                if above is not None:
                    raise GraphError(
                        f"the results of '{target.label}' would lie inside those of '{above.label}'",
                        where=target.where,
                        hint=f"rename one of the two, or the package: both would be at '{place}'",
                    )

    # ---- walking ----------------------------------------------------------------------------

    def _visit(self, start: str) -> None:
        """Depth first without recursion: chains of 10,000 targets are ordinary."""
        on_path: dict[str, None] = {}
        stack: list[tuple[str, list[str] | None]] = [(self._owner(start), None)]
        while stack:
            label, dependencies = stack.pop()
            if dependencies is None:
                if label in self.graph.targets or label in self._handles:
                    continue
                if label in on_path:
                    path = list(on_path)
                    cycle = [*path[path.index(label) :], label]
                    raise GraphError(
                        "cycle: " + " -> ".join(cycle),
                        where=self._raw(label).where,
                        hint="remove one of these dependencies",
                    )
                raw = self._find(label)
                if raw is None:
                    self._source(label)
                    continue
                dependencies = self._dependencies(label, raw)
                on_path[label] = None
                stack.append((label, dependencies))
                stack.extend((d, None) for d in reversed(dependencies) if d not in self.graph.targets)
            else:
                del on_path[label]
                self._configure(label, dependencies)

    def _owner(self, label: str) -> str:
        """The target that a label belongs to: itself, or the genrule whose output file it names."""
        package, _, name = label.rpartition(":")
        loaded = self._package(package)
        generated = self._generated_files(package, loaded)  # always: it finds what collides
        if name in loaded.targets:
            return label
        made_by = generated.get(name)
        return f"{package}:{made_by}" if made_by else label

    def _package(self, prefix: str) -> Any:
        return self._packages.package(prefix.removeprefix("//"))

    def _generated_files(self, prefix: str, loaded: Any) -> dict[str, str]:
        found = self._generated.get(prefix)
        if found is None:
            found = {}
            for raw in loaded.targets.values():
                if raw.rule != "genrule":
                    continue
                for out in raw.attrs.get("outs", ()):
                    if not isinstance(out, str):
                        continue
                    if out in found and found[out] != raw.name:
                        raise GraphError(
                            f"'{prefix}:{found[out]}' and '{prefix}:{raw.name}' both make '{out}'",
                            where=raw.where,
                            hint="rename one of the two outputs",
                        )
                    if out in loaded.targets and out != raw.name:
                        raise GraphError(
                            f"'{prefix}:{raw.name}' makes '{out}', which is also the name of a target",
                            where=raw.where,
                        )
                    found[out] = raw.name
            self._generated[prefix] = found
        return found

    def _find(self, label: str) -> Any | None:
        package, _, name = label.rpartition(":")
        return self._package(package).targets.get(name)

    def _raw(self, label: str) -> Any:
        raw = self._find(label)
        assert raw is not None
        return raw

    def _source(self, label: str) -> Handle:
        """A label that is no target is a file or folder of its package."""
        if label in self._handles:
            return self._handles[label][0]
        package, _, name = label.rpartition(":")
        folder = package[2:]
        path = f"{folder}/{name}" if folder else name
        try:
            mode = os.stat(f"{self._root_text}/{path}").st_mode
        except (OSError, ValueError):
            loaded = self._package(package)
            names = [*loaded.targets, *self._generated_files(package, loaded)]
            raise GraphError(
                f"no target or file '{label}'{did_you_mean(name, names)}",
                hint=f"targets of //{folder}: {_some(names)}" if names else f"//{folder} has no targets",
            ) from None
        self._must_be_inside(path)
        parts = name.split("/")
        for i in range(1, len(parts)):
            below = "/".join([*([folder] if folder else []), *parts[:i]])
            if below in self._no_packages:
                continue
            # should it become a package, or lead elsewhere, the source is another
            for place in (below, f"{below}/MXTBUILD"):
                if place not in self.graph.read:
                    self.graph.read[place] = stat_of(f"{self._root_text}/{place}")
            if (self.root / below / "MXTBUILD").is_file():
                raise GraphError(
                    f"'{label}' reaches into the package '//{below}'",
                    hint=f"write '//{below}:{'/'.join(parts[i:])}'",
                )
            self._no_packages.add(below)
        handle = Handle(basename(path), path, "dir" if stat.S_ISDIR(mode) else "file", SourceRef(path))
        self._handles[label] = (handle,)
        return handle

    def _must_be_inside(self, path: str) -> None:
        """Raises GraphError for a link that leads out of the workspace."""
        full = f"{self._root_text}/{path}"
        if os.path.islink(full):
            real = os.path.realpath(full)
        else:
            folder, _, name = full.rpartition("/")
            if folder not in self._real_folders:
                self._real_folders[folder] = os.path.realpath(folder)
            real = f"{self._real_folders[folder]}/{name}"
        if not real.startswith(self._real_root):
            raise GraphError(
                f"'{path}' is a link that leads out of the workspace", hint="copy the file into the workspace"
            )

    # ---- dependencies -----------------------------------------------------------------------

    def _resolve_label(self, text: str, package: str, where: str) -> str:
        """Canonical label, without the '#output' that a consumer may have chosen."""
        text = text.partition("#")[0]
        known = self._labels.get((package, text))
        if known is None:
            try:
                known = str(Label.parse(text, package=package))
            except LoadError as error:
                raise LoadError(error.message, where=where, hint=error.hint) from None
            self._labels[(package, text)] = known
        return known

    def _dependencies(self, label: str, raw: Any) -> list[str]:
        package = label.rpartition(":")[0][2:]
        if raw.rule in CORE_RULES:
            check_attributes(raw.rule, raw.name, raw.attrs, raw.where)
            texts = [t for key in LABEL_LISTS.get(raw.rule, ()) for t in raw.attrs.get(key, ())]
        else:
            definition = self._rules(raw.rule)
            texts = definition.label_values(self._attrs(definition, raw))
        texts.extend(raw.attrs[k] for k in ("toolchain", "platform") if k in raw.attrs and raw.rule != k)
        found: dict[str, None] = {}
        for text in texts:
            dependency = self._resolve_label(text, package, raw.where)
            try:
                found[self._owner(dependency)] = None
                if self._find(self._owner(dependency)) is None:
                    self._source(dependency)
            except GraphError as error:
                raise GraphError(
                    error.message, where=error.where or raw.where, hint=error.hint or f"needed by '{label}'"
                ) from None
        return list(found)

    def _attrs(self, definition: RuleDefinition, raw: Any) -> Any:
        own = {k: v for k, v in raw.attrs.items() if k not in ("tags", "toolchain", "platform")}
        for key, kind in (("tags", list), ("toolchain", str), ("platform", str)):
            if key in raw.attrs:
                check_type(raw.rule, raw.name, key, raw.attrs[key], kind, raw.where)
        return definition.validate(raw.name, own, raw.where)

    # ---- running rules ----------------------------------------------------------------------

    def _configure(self, label: str, dependencies: list[str]) -> None:
        raw = self._raw(label)
        package = label.rpartition(":")[0][2:]
        target = AnalysedTarget(
            label=label,
            rule=raw.rule,
            where=raw.where,
            tags=tuple(raw.attrs.get("tags", ())),
            dependencies=tuple(dependencies),
        )

        def resolve(text: str) -> Sequence[Handle]:
            base, _, output = text.partition("#")
            canonical = self._resolve_label(base, package, raw.where)
            handles = self._outputs(canonical)
            return (choose_output(handles, base, output, raw.where),) if output else handles

        if raw.rule == "genrule":
            action = genrule_action(
                label,
                package,
                raw.name,
                raw.attrs,
                raw.where,
                resolve,
                lambda text: self._resolve_label(text, package, raw.where),
                self._surroundings(raw, package),
            )
            self._add(target, [action])
        elif raw.rule == "filegroup":
            target.outputs = tuple(h for s in raw.attrs["srcs"] for h in resolve(s))
        elif raw.rule == "bundle":
            target.members = tuple(self._resolve_label(d, package, raw.where) for d in raw.attrs["deps"])
            target.outputs = tuple(h for d in raw.attrs["deps"] for h in resolve(d))
            target.receipt = raw.attrs.get("receipt", True)
            target.facts = {"recipe": self._recipe(raw, package)}
        elif raw.rule == "toolchain":
            target.facts = self._toolchain(raw, package)
        elif raw.rule == "platform":
            target.facts = self._platform(raw)
        else:
            self._python_rule(target, raw, package, resolve)
        self.graph.targets[label] = target

    def _recipe(self, raw: Any, package: str) -> str:
        """The workspace path of the file that a bundle's receipt names as its recipe; "" for none.

        Looked for now: it is read when all is made, and a name that is wrong must not cost the receipt.
        """
        text = raw.attrs.get("recipe", "")
        if not text:
            return ""
        label = Label.parse(text, package=package, where=raw.where)
        if label.repo:
            raise LoadError(
                f"bundle '{raw.name}': its recipe '{text}' is no file of the workspace", where=raw.where
            )
        self._must_be_inside(label.path)
        self.graph.read[label.path] = stat_of(self.root / label.path)
        if not (self.root / label.path).is_file():
            raise LoadError(
                f"bundle '{raw.name}': there is no file '{label.path}', which it names as its recipe",
                where=raw.where,
                hint="name a file relative to the package, or by a label: '//package:file.yaml'",
            )
        return label.path

    def _outputs(self, canonical: str) -> tuple[Handle, ...]:
        if canonical in self.graph.targets:
            return self.graph.targets[canonical].outputs
        if canonical in self._handles:
            return self._handles[canonical]
        owner = self._owner(canonical)
        if owner == canonical:
            self._visit(canonical)
            return self._outputs(canonical)
        name = canonical.rpartition(":")[2]
        return (choose_output(self.graph.targets[owner].outputs, owner, name, ""),)

    def _python_rule(
        self, target: AnalysedTarget, raw: Any, package: str, resolve: Callable[[str], Sequence[Handle]]
    ) -> None:
        definition = self._rules(raw.rule)
        attrs = self._attrs(definition, raw)
        surroundings = {
            **self._surroundings(raw, package),
            "implementation": definition.implementation,
            "test": definition.test,
            "effect": definition.effect,
        }
        view = Target(
            label=target.label,
            package=package,
            name=raw.name,
            where=raw.where,
            attrs=attrs,
            config=definition.project(attrs, definition.keyed, raw.where),
            unkeyed=definition.project(attrs, definition.unkeyed, raw.where),
            defaults=surroundings,
            resolve=resolve,
            split=self._split,
        )
        try:
            definition.actions(view)
        except MxtError:
            raise
        except Exception as error:
            raise _rule_failed(raw, target.label, error) from error
        if not view.made:
            raise GraphError(f"rule '{raw.rule}' made no action for '{target.label}'", where=raw.where)
        target.test, target.effect = definition.test, definition.effect
        if target.test and not any(o.name == "verdict" for a in view.made for o in a.outputs):
            raise GraphError(
                f"rule '{raw.rule}' is a test and declares no output 'verdict'",
                where=raw.where,
                hint='outputs = {"verdict": "verdict.json"}, JSON {"passed": true, "summary": "..."}',
            )
        self._add(target, view.made)

    def _add(self, target: AnalysedTarget, actions: list[Action]) -> None:
        for action in actions:
            self.graph.actions[action.id] = action
        target.actions = tuple(a.id for a in actions)
        target.outputs = tuple(output_handle(a, o) for a in actions for o in a.outputs)

    def _split(self, handle: Handle, lines: int) -> list[Handle]:
        assert isinstance(handle.ref, SourceRef)
        pieces = self._slices(handle.ref.path, lines)
        self.graph.split_sources[(handle.ref.path, lines)] = tuple(p[2] for p in pieces)
        return [
            Handle(handle.name, handle.path, "file", SliceRef(handle.ref.path, *piece, i * lines + 1))
            for i, piece in enumerate(pieces)
        ]

    # ---- toolchains and platforms -------------------------------------------------------------

    def _surroundings(self, raw: Any, package: str) -> dict[str, Any]:
        """Toolchain, platform and environment of a target's actions, as digests and values."""
        found: dict[str, Any] = {"toolchain": None, "platform": None, "environment": {}}
        for kind in ("toolchain", "platform"):
            if kind not in raw.attrs:
                continue
            label = self._resolve_label(raw.attrs[kind], package, raw.where)
            target = self.graph.targets.get(label)
            if target is None or target.rule != kind:
                raise GraphError(
                    f"'{label}' is no {kind}", where=raw.where, hint=f"declare it with {kind}(name = ...)"
                )
            found[kind] = target.facts["digest"]
            if kind == "platform":
                found["environment"] = target.facts["env"]
        return found

    def _toolchain(self, raw: Any, package: str) -> dict[str, Any]:
        attrs = raw.attrs
        if ("lock" in attrs) == ("image" in attrs):
            raise LoadError(
                f"toolchain '{raw.name}' needs either 'lock' or 'image' and 'digest'", where=raw.where
            )
        if "image" in attrs:
            image = self._image(raw, package)
            return {"image": image.name, "digest": image.key}
        from mxt.action.toolchain_lock import parse_lock

        path = Label.parse(attrs["lock"], package=package, where=raw.where).path
        self._must_be_inside(path)
        self.graph.read[path] = stat_of(self.root / path)
        try:
            data = (self.root / path).read_bytes()
        except OSError as error:
            raise LoadError(
                f"toolchain '{raw.name}': cannot read its lock '{path}': {error.strerror}",
                where=raw.where,
                hint="make it with 'mxt toolchain lock'",
            ) from None
        digest = parse_lock(data, path).digest
        self.graph.toolchains[digest] = path
        return {"lock": path, "digest": digest}

    def _image(self, raw: Any, package: str) -> Image:
        from mxt.action.image import ARCHITECTURES, Image, problem_of_digest, problem_of_name

        name, digest = raw.attrs["image"], raw.attrs.get("digest", "unpinned")
        arch = raw.attrs.get("arch", "amd64")
        if problem := problem_of_name(name):
            raise LoadError(f"toolchain '{raw.name}': {problem}", where=raw.where)
        label = f"//{package}:{raw.name}"
        if problem := problem_of_digest(digest):
            hint = f"'mxt toolchain pin {label} --write' looks it up; \"unpinned\" stands for not yet"
            raise LoadError(f"toolchain '{raw.name}': {problem}", where=raw.where, hint=hint)
        if arch not in ARCHITECTURES:
            problem = f"'{arch}' is not one of its architectures: {', '.join(ARCHITECTURES)}"
            raise LoadError(f"toolchain '{raw.name}': {problem}", where=raw.where)
        image = Image(label, name, digest, arch, raw.where)
        # two names of the same bytes are the same toolchain
        return self.graph.images.setdefault(image.key, image)

    def _platform(self, raw: Any) -> dict[str, Any]:
        from mxt.action.platform import platform_digest
        from mxt.action.variables import problem_of

        properties = {k: v for k, v in raw.attrs.items() if k != "tags"}
        environment = properties.get("env", {})
        if not all(isinstance(v, str) for v in environment.values()):
            raise LoadError(f"platform '{raw.name}': env must map text to text", where=raw.where)
        if wrong := problem_of(environment):
            raise LoadError(f"platform '{raw.name}': {wrong[0]}", where=raw.where, hint=wrong[1])
        digest = platform_digest(properties)
        self.graph.platforms[digest] = properties
        return {"properties": properties, "env": environment, "digest": digest}


def _rule_failed(raw: Any, label: str, error: Exception) -> GraphError:
    """A defect of a rule's own code, told with the line of the rule where it happened."""
    import traceback

    frames = traceback.extract_tb(error.__traceback__)
    places = [f for f in frames if os.path.basename(os.path.dirname(f.filename)) == "rules"]
    at = f", at rules/{os.path.basename(places[-1].filename)}:{places[-1].lineno}" if places else ""
    text = f"{type(error).__name__}: {error}".removesuffix(": ")
    return GraphError(f"rule '{raw.rule}' failed on '{label}'{at}: {text}", where=raw.where)


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(sorted(names)[:8])
    return f"{shown}, ... ({len(names)})" if len(names) > 8 else shown
