"""Builds the statement of a receipt: in-toto Statement v1 with SLSA Provenance v1, canonical JSON.

subject                every file of every output of every action, blake3 and sha256
buildDefinition        what was asked for and how it is made: the same in every build of the same thing
  externalParameters     target, recipe
  internalParameters     actions (form, key, outputs, where each input came from), platforms
  resolvedDependencies   source files, slices and folders; toolchain locks
runDetails             who built it, when, and how it came about
  builder                its id is the operator's public key
  byproducts             signed realisations and runs, whole; evidence by digest
"""

from __future__ import annotations

import base64
import hashlib
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mxt.action.action import Action, ActionId, InputRef, OutputRef, SliceRef, SourceRef
from mxt.action.canonical import canonical, dump, load
from mxt.action.key import Key
from mxt.errors import StoreError
from mxt.receipt.names import action_name, origin_form, source_name, stage_names
from mxt.receipt.sha256 import Sha256Memory
from mxt.store.action_cache import ActionCache
from mxt.store.digest import hash_bytes, hash_fd, open_regular
from mxt.store.realisation import Output, Realisation, RunRecord
from mxt.store.records import REALISATION_TYPE, RUN_TYPE
from mxt.store.signing import keyid_of
from mxt.store.tree import FileFacts, build_tree, walk_tree

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "urn:mxt:build:v1"
BUILDER_PREFIX = "urn:mxt:operator:ed25519:"
TREE_TYPE = "application/vnd.mxt.tree.v1+json"

Json = dict[str, Any]


@dataclass(frozen=True)
class BuiltAction:
    """One finished action. form: the canonical bytes whose digest is key. inputs: origin by input name."""

    id: ActionId
    mnemonic: str
    key: str
    form: bytes
    inputs: Mapping[str, InputRef]
    realisation: Realisation

    @staticmethod
    def of(action: Action, key: Key, realisation: Realisation) -> BuiltAction:
        """From what the engine holds when an action is done."""
        inputs = {i.name: i.ref for i in action.inputs}
        return BuiltAction(action.id, action.mnemonic, key.digest, key.form, inputs, realisation)


@dataclass(frozen=True)
class Built:
    """A finished target: the actions of its closure, each after those it reads.

    recipe: its path below the root, or None. toolchains: lock digest -> path below the root.
    platforms: platform digest -> properties. Of both only what some action names is kept.
    """

    target: str
    actions: Sequence[BuiltAction]
    recipe: str | None = None
    toolchains: Mapping[str, str] = field(default_factory=dict)
    platforms: Mapping[str, Mapping[str, object]] = field(default_factory=dict)


@dataclass(frozen=True)
class Invocation:
    """One build. id: unique. started, finished: UTC, ISO 8601 with a final "Z"."""

    id: str
    started: str
    finished: str


def internal_parameters(built: Built) -> Json:
    """The actions and platforms, as the receipt states them; reads nothing from the disk."""
    forms = [load(action.form) for action in built.actions]
    used = {form["platform"] for form in forms}
    return {
        "actions": [
            {
                "label": action.id.label,
                "name": action.id.name,
                "mnemonic": action.mnemonic,
                "key": action.key,
                "form": form,
                "outputs": {name: output.form() for name, output in action.realisation.outputs.items()},
                "inputs_from": {name: origin_form(ref) for name, ref in action.inputs.items()},
            }
            for action, form in zip(built.actions, forms, strict=True)
        ],
        "platforms": {d: canonical(dict(p)) for d, p in built.platforms.items() if d in used},
    }


def external_parameters(built: Built, workspace: Path) -> Json:
    """What the user asked for: the target, and the recipe by path and digest."""
    recipe = None
    if built.recipe is not None:
        try:
            data = (workspace / built.recipe).read_bytes()
        except OSError as error:
            raise StoreError(
                f"cannot read the recipe: {(error.strerror or '').lower()}", where=built.recipe
            ) from None
        recipe = {"path": built.recipe, "digest": _both(data)}
    return {"target": built.target, "recipe": recipe}


def build_statement(
    built: Built, invocation: Invocation, *, workspace: Path, cache: ActionCache, public: bytes, version: str
) -> bytes:
    """The payload of a receipt. public: the operator's raw public key. version: of mxt.

    Raises StoreError where a blob is missing, or a source or lock is not what the keys say.
    """
    with Sha256Memory(cache.cas) as memory:
        builder = _Builder(built, workspace, cache, memory, keyid_of(public))
        statement = {
            "_type": STATEMENT_TYPE,
            "subject": builder.subjects(),
            "predicateType": PREDICATE_TYPE,
            "predicate": {
                "buildDefinition": {
                    "buildType": BUILD_TYPE,
                    "externalParameters": external_parameters(built, workspace),
                    "internalParameters": internal_parameters(built),
                    "resolvedDependencies": builder.dependencies(),
                },
                "runDetails": {
                    "builder": {"id": BUILDER_PREFIX + public.hex(), "version": {"mxt": version}},
                    "metadata": {
                        "invocationId": invocation.id,
                        "startedOn": invocation.started,
                        "finishedOn": invocation.finished,
                    },
                    "byproducts": builder.byproducts(),
                },
            },
        }
    return dump(statement)


def output_subjects(
    prefix: str, output: Output, files: Sequence[tuple[str, str]]
) -> Iterator[tuple[str, str]]:
    """(name, digest) of the subjects of one output. files: (relative path, digest) of a folder's files.

    A folder without files is named by its tree object, so that it does not go unmentioned.
    """
    place = f"{prefix}/{output.path}"
    if output.kind == "file":
        yield place, output.digest
    elif files:
        yield from ((f"{place}/{path}", digest) for path, digest in files)
    else:
        yield f"{place}/", output.digest


class _Builder:
    """The parts of a statement that need the disk."""

    def __init__(
        self, built: Built, workspace: Path, cache: ActionCache, memory: Sha256Memory, keyid: str
    ) -> None:
        self._built = built
        self._keyid = keyid
        self._workspace = workspace
        self._cache = cache
        self._cas = cache.cas
        self._memory = memory
        self._stages = stage_names(built.target, dict.fromkeys(a.id.label for a in built.actions))

    def subjects(self) -> list[Json]:
        found: list[tuple[str, str]] = []
        for action in self._built.actions:
            prefix = action_name(self._stages, action.id)
            for output in action.realisation.outputs.values():
                files = []
                if output.kind == "dir":
                    tree = walk_tree(self._cas, output.digest)
                    files = [(path, entry.digest) for path, entry in tree if entry.kind == "file"]
                found += output_subjects(prefix, output, files)
        return [{"name": n, "digest": _digests(d, self._memory.of_blob(d))} for n, d in sorted(found)]

    def dependencies(self) -> list[Json]:
        """Sources by name, then toolchains."""
        sources: dict[str, Json] = {}
        toolchains: dict[str, Json] = {}
        for action in self._built.actions:
            form = load(action.form)
            for name, ref in action.inputs.items():
                if isinstance(ref, OutputRef):
                    continue
                stated = form["inputs"][name]
                made = self._source(ref, stated["digest"], stated["kind"])
                if sources.setdefault(made["name"], made)["digest"] != made["digest"]:
                    raise StoreError(
                        "the source changed during the build", where=ref.path, hint="build again"
                    )
            if form["toolchain"] is not None:
                toolchains[form["toolchain"]] = self._toolchain(form["toolchain"])
        return [*(sources[n] for n in sorted(sources)), *(toolchains[d] for d in sorted(toolchains))]

    def _source(self, ref: SourceRef | SliceRef, digest: str, kind: str) -> Json:
        place = self._workspace / ref.path
        annotations: Json = {"role": "source", "kind": kind, "path": ref.path}
        made: Json = {"name": source_name(ref), "annotations": annotations}
        if isinstance(ref, SliceRef):
            annotations |= {"kind": "slice", "offset": ref.offset, "length": ref.length, "line": ref.line}
            made["digest"] = _digests(digest, self._slice(place, ref, digest))
        elif kind == "dir":
            made["mediaType"] = TREE_TYPE
            made["digest"] = _digests(digest, self._folder(place, digest))
        else:
            made["digest"] = _digests(digest, self._memory.of_file(place, digest))
        return made

    def _slice(self, place: Path, ref: SliceRef, digest: str) -> str:
        fd = open_regular(place)
        try:
            os.lseek(fd, ref.offset, os.SEEK_SET)
            found = hash_fd(fd, sha256=True, length=ref.length)
        finally:
            os.close(fd)
        if found.digest != digest:
            raise StoreError("the file changed during the build", where=str(place), hint="build again")
        return self._memory.note(digest, found.sha256)

    def _folder(self, place: Path, digest: str) -> str:
        """SHA-256 of a source folder's tree object, which is made again, as sources are not in the store."""
        objects: dict[str, bytes] = {}
        found = build_tree(place, _hash_all, lambda made, data: objects.update({made: data}))
        if found.digest != digest:
            raise StoreError("the folder changed during the build", where=str(place), hint="build again")
        return hashlib.sha256(objects[digest]).hexdigest()

    def _toolchain(self, digest: str) -> Json:
        path = self._built.toolchains.get(digest)
        if path is None:  # a container image is its own name
            algorithm, _, value = digest.rpartition("@")[2].rpartition(":")
            return {
                "name": digest,
                "digest": {algorithm or "blake3": value},
                "annotations": {"role": "toolchain", "kind": "image"},
            }
        return {
            "name": path,
            "digest": _digests(digest, self._memory.of_file(self._workspace / path, digest)),
            "annotations": {"role": "toolchain", "kind": "lock", "path": path},
        }

    def byproducts(self) -> list[Json]:
        found = []
        layout = self._cas.layout
        for action in self._built.actions:
            place = action_name(self._stages, action.id)
            # a realisation made just now does not say whose it is: it is ours
            operator = action.realisation.operator or self._keyid
            record = layout.action(action.key) / f"{operator}.json"
            found.append(_record(f"realisation/{place}", REALISATION_TYPE, record))
            run = self._run_of(action.realisation)
            if run is None:
                continue
            record = layout.runs(action.key) / f"{run.name}.json"
            found.append(_record(f"run/{place}", RUN_TYPE, record) | {"annotations": {"run": run.name}})
            found += [
                {"name": f"evidence/{place}/{path}", "digest": {"blake3": digest}}
                for path, digest in sorted(run.evidence.items())
            ]
        return found

    def _run_of(self, realisation: Realisation) -> RunRecord | None:
        """The newest run that gave this realisation; none where another operator's result was used."""
        for run in reversed(self._cache.runs(realisation.key)):
            folder = self._cas.layout.evidence(run.key, run.name)
            # one whose evidence somebody deleted could not be verified
            whole = all((folder / path).exists() for path in run.evidence)
            if whole and run.realisation == realisation.digest:
                return run
        return None


def _record(name: str, kind: str, path: Path) -> Json:
    """A signed record, whole, so that it can be checked from the receipt alone."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise StoreError(
            f"cannot read a record that the receipt quotes: {(error.strerror or '').lower()}",
            where=str(path),
            hint="build again",
        ) from None
    return {
        "name": name,
        "mediaType": kind,
        "content": base64.b64encode(data).decode(),
        "digest": _both(data),
    }


def _digests(blake3: str, sha256: str) -> Json:
    return {"blake3": blake3, "sha256": sha256}


def _both(data: bytes) -> Json:
    return _digests(hash_bytes(data), hashlib.sha256(data).hexdigest())


def _hash_all(files: list[str]) -> list[FileFacts]:
    from mxt.store.digest import hash_file

    return [FileFacts(*hash_file(path)[:2], bool(os.lstat(path).st_mode & stat.S_IXUSR)) for path in files]
