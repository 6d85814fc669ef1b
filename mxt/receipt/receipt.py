"""A receipt that was read: the same facts as `statement` wrote, typed, every field checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from mxt.action.action import ActionId
from mxt.receipt.dsse import Envelope, UnreadableError, decode, decode_base64, parse_canonical
from mxt.receipt.schema import MalformedError, Node, refuse_floats
from mxt.receipt.statement import BUILD_TYPE, BUILDER_PREFIX, PREDICATE_TYPE, STATEMENT_TYPE
from mxt.store.digest import hash_bytes
from mxt.store.realisation import Output, Realisation, safe_path
from mxt.store.records import REALISATION_TYPE, RUN_TYPE

RECEIPT_NAME = "receipt.dsse.json"
REPORT_NAME = "report.html"  # for reading, beside the receipt; nothing vouches for it
MAX_BYTES = 1 << 30


@dataclass(frozen=True)
class StatedAction:
    """place: its path in the statement. inputs_from: by input name, as `origin_form` writes it."""

    id: ActionId
    mnemonic: str
    key: str
    form: dict[str, Any]
    outputs: Mapping[str, Output]
    inputs_from: Mapping[str, Mapping[str, Any]]
    place: str


@dataclass(frozen=True)
class Dependency:
    """A source or toolchain. kind: file, dir, slice, lock or image. path: below the root; "" for an image.

    digests: by algorithm. offset, length: of a slice, in bytes.
    """

    name: str
    role: str
    kind: str
    path: str
    digests: Mapping[str, str]
    offset: int = 0
    length: int = 0


@dataclass(frozen=True)
class Quoted:
    """A signed record that the receipt holds whole. run: the name of its file among the key's runs."""

    data: bytes
    kind: str
    digests: tuple[str, str]
    run: str = ""


@dataclass(frozen=True)
class Statement:
    """What a receipt states. public: the raw public key of whoever signed it. subjects: name -> digests.

    records, evidence: by their byproduct's name, such as "realisation/train" or "evidence/train/log".
    """

    target: str
    recipe: tuple[str, tuple[str, str]] | None
    actions: tuple[StatedAction, ...]
    platforms: Mapping[str, Any]
    dependencies: tuple[Dependency, ...]
    subjects: Mapping[str, tuple[str, str]]
    records: Mapping[str, Quoted]
    evidence: Mapping[str, str]
    public: bytes
    versions: Mapping[str, str]
    invocation: str
    started: str
    finished: str
    internal: Any
    external: Any


@dataclass(frozen=True)
class Receipt:
    """digest: BLAKE3 of the payload, by which a receipt is named."""

    envelope: Envelope
    digest: str
    statement: Statement


def read_envelope(path: str | PathLike[str]) -> Envelope:
    """Raises UnreadableError where there is no receipt in canonical form."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UnreadableError(
            f"cannot read the receipt: {(error.strerror or str(error)).lower()}", where=str(path)
        ) from None
    if len(data) > MAX_BYTES:
        raise UnreadableError("the file is too large for a receipt", where=str(path))
    try:
        return decode(data)
    except UnreadableError as error:
        error.where = error.where or str(path)
        raise


def read_receipt(path: str | PathLike[str]) -> Receipt:
    """Parse a receipt; says nothing about its signature. Raises UnreadableError."""
    envelope = read_envelope(path)
    return Receipt(envelope, hash_bytes(envelope.payload), parse_statement(envelope.payload))


def subject_digests(receipt: str | PathLike[str] | Receipt) -> dict[str, str]:
    """Subject name -> BLAKE3 digest: equal for two builds that gave the same bytes."""
    if not isinstance(receipt, Receipt):
        receipt = read_receipt(Path(receipt))
    return {name: digests[0] for name, digests in receipt.statement.subjects.items()}


def parse_statement(payload: bytes) -> Statement:
    """Raises MalformedError naming the first field that is not as `build_statement` would write it."""
    form = parse_canonical(payload, "the statement")
    refuse_floats(form)
    top = Node(form, "").fields("_type subject predicateType predicate")
    top["_type"].exactly(STATEMENT_TYPE)
    top["predicateType"].exactly(PREDICATE_TYPE)
    predicate = top["predicate"].fields("buildDefinition runDetails")
    definition = predicate["buildDefinition"].fields(
        "buildType externalParameters internalParameters resolvedDependencies"
    )
    definition["buildType"].exactly(BUILD_TYPE)
    external = definition["externalParameters"].fields("target recipe")
    internal = definition["internalParameters"].fields("actions platforms")
    details = predicate["runDetails"].fields("builder metadata byproducts")
    builder = details["builder"].fields("id version")
    metadata = details["metadata"].fields("invocationId startedOn finishedOn")
    records: dict[str, Quoted] = {}
    evidence: dict[str, str] = {}
    for node in details["byproducts"].items():
        _byproduct(node, records, evidence)
    return Statement(
        target=external["target"].text(),
        recipe=_recipe(external["recipe"]),
        actions=tuple(_action(node) for node in internal["actions"].items()),
        platforms={digest: node.value for digest, node in internal["platforms"].mapping().items()},
        dependencies=tuple(_dependency(node) for node in definition["resolvedDependencies"].items()),
        subjects=_subjects(top["subject"]),
        records=records,
        evidence=evidence,
        public=_public(builder["id"]),
        versions={name: node.text() for name, node in builder["version"].mapping().items()},
        invocation=metadata["invocationId"].text(),
        started=metadata["startedOn"].text(),
        finished=metadata["finishedOn"].text(),
        internal=definition["internalParameters"].value,
        external=definition["externalParameters"].value,
    )


def _recipe(node: Node) -> tuple[str, tuple[str, str]] | None:
    if node.value is None:
        return None
    found = node.fields("path digest")
    return _path(found["path"]), found["digest"].digests()


def _subjects(node: Node) -> dict[str, tuple[str, str]]:
    out: dict[str, tuple[str, str]] = {}
    for item in node.items():
        found = item.fields("name digest")
        name = found["name"].text()
        if name in out:
            raise MalformedError(f"subject '{name}' comes twice", where=item.path)
        out[name] = found["digest"].digests()
    return out


def _action(node: Node) -> StatedAction:
    found = node.fields("label name mnemonic key form outputs inputs_from")
    form = found["form"]
    parts = form.mapping()
    for part in ("inputs", "outputs"):
        if part not in parts:
            raise MalformedError(f"field '{part}' is missing", where=form.path)
        for item in parts[part].mapping().values():
            item.mapping()
    realisation = {"version": 1, "key": found["key"].hex64(), "outputs": found["outputs"].value}
    try:
        outputs = Realisation.parse(realisation).outputs
    except (ValueError, TypeError) as error:
        raise MalformedError(str(error), where=found["outputs"].path) from None
    origins = {name: _origin(item) for name, item in found["inputs_from"].mapping().items()}
    identity = ActionId(found["label"].text(), found["name"].text())
    return StatedAction(
        identity, found["mnemonic"].text(), found["key"].value, form.value, outputs, origins, node.path
    )


def _origin(node: Node) -> dict[str, Any]:
    if "action" in node.mapping():
        found = node.fields("action output")
        identity = [item.text() for item in found["action"].items()]
        if len(identity) != 2:
            raise found["action"].wrong("a label and a name")
        return {"action": ActionId(*identity), "output": found["output"].text()}
    found = node.fields("source", "offset length line")
    origin: dict[str, Any] = {"source": _path(found["source"])}
    if len(found) > 1:
        found = node.fields("source offset length line")
        origin |= {name: found[name].number() for name in ("offset", "length", "line")}
    return origin


def _dependency(node: Node) -> Dependency:
    found = node.fields("name digest annotations", "mediaType")
    notes = found["annotations"].fields("role kind", "path offset length line")
    kind = notes["kind"].text()
    if kind not in ("file", "dir", "slice", "lock", "image"):
        raise notes["kind"].wrong("file, dir, slice, lock or image")
    if kind == "image":
        digests = {name: item.text() for name, item in found["digest"].mapping().items()}
    else:
        digests = dict(zip(("blake3", "sha256"), found["digest"].digests(), strict=True))
    if kind != "image" and "path" not in notes:
        raise MalformedError("field 'path' is missing", where=found["annotations"].path)
    if kind == "slice":
        notes = found["annotations"].fields("role kind path offset length line")
    return Dependency(
        found["name"].text(),
        notes["role"].text(),
        kind,
        _path(notes["path"]) if "path" in notes else "",
        digests,
        notes["offset"].number() if kind == "slice" else 0,
        notes["length"].number() if kind == "slice" else 0,
    )


def _byproduct(node: Node, records: dict[str, Quoted], evidence: dict[str, str]) -> None:
    found = node.fields("name digest", "mediaType content annotations")
    name = found["name"].text()
    if name in records or name in evidence:
        raise MalformedError(f"byproduct '{name}' comes twice", where=node.path)
    sort = name.partition("/")[0]
    if sort == "evidence":
        evidence[name] = node.fields("name digest")["digest"].fields("blake3")["blake3"].hex64()
    elif sort == "realisation":
        found = node.fields("name digest mediaType content")
        records[name] = _quoted(found, found["mediaType"].exactly(REALISATION_TYPE), "")
    elif sort == "run":
        found = node.fields("name digest mediaType content annotations")
        run = found["annotations"].fields("run")["run"]
        if "/" in run.text() or not safe_path(run.text()):
            raise run.wrong("the name of a run")
        records[name] = _quoted(found, found["mediaType"].exactly(RUN_TYPE), run.text())
    else:
        raise found["name"].wrong("a realisation, run or evidence")


def _quoted(found: dict[str, Node], kind: str, run: str) -> Quoted:
    data = decode_base64(found["content"].value, found["content"].path)
    return Quoted(data, kind, found["digest"].digests(), run)


def _public(node: Node) -> bytes:
    text = node.text()
    if not text.startswith(BUILDER_PREFIX):
        raise node.wrong(f"'{BUILDER_PREFIX}' and a public key")
    return bytes.fromhex(Node(text[len(BUILDER_PREFIX) :], node.path).hex64())


def _path(node: Node) -> str:
    if not safe_path(node.text()):
        raise node.wrong("a plain path below the workspace")
    return node.text()
