"""What a receipt shows by itself: signature, keys, wiring and the records it quotes; reads no other file."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from typing import Any

from mxt.action.action import ActionId
from mxt.action.canonical import dump, restore
from mxt.action.platform import platform_digest
from mxt.receipt.dsse import Envelope, signature_holds
from mxt.receipt.findings import Result, Signer
from mxt.receipt.names import action_name, stage_names
from mxt.receipt.receipt import Dependency, Quoted, StatedAction, Statement
from mxt.receipt.trust import TrustedKeys
from mxt.store.digest import hash_bytes
from mxt.store.realisation import Realisation, RunRecord
from mxt.store.records import Record, open_record
from mxt.store.signing import keyid_of


class StatementCheck:
    """Checks a statement against itself; `names` and `runs` serve the checks that read the disk.

    names: action -> its name in subjects and byproducts. runs: the same -> what its quoted run says.
    """

    def __init__(
        self, envelope: Envelope, statement: Statement, trusted: TrustedKeys, result: Result
    ) -> None:
        self._envelope = envelope
        self._statement = statement
        self._trusted = trusted
        self._result = result
        stages = stage_names(statement.target, dict.fromkeys(a.id.label for a in statement.actions))
        self.names = {action.id: action_name(stages, action.id) for action in statement.actions}
        self.runs: dict[str, RunRecord] = {}
        self._read: set[str] = set()

    def check(self) -> None:
        self._signature()
        by_id: dict[ActionId, StatedAction] = {}
        for action in self._statement.actions:
            if action.id in by_id:
                self._wrong("action", action.place, f"the action '{action.id}' comes twice", "once", "twice")
            by_id[action.id] = action
        sources = {d.name: d for d in self._statement.dependencies if d.role == "source"}
        for action in self._statement.actions:
            self._key(action)
            self._outputs(action)
            self._wiring(action, by_id, sources)
            self._surroundings(action)
            self._records(action)
        self._leftovers()

    def public_of(self, keyid: str) -> bytes | None:
        """The public key behind a record's fingerprint: the receipt's signer, or a trusted operator."""
        if keyid == keyid_of(self._statement.public):
            return self._statement.public
        return self._trusted.by_id(keyid)

    # ---- the signature --------------------------------------------------------------------------

    def _signature(self) -> None:
        public = self._statement.public
        name = self._trusted.name(public)
        encoded = base64.b64encode(public).decode()
        self._result.signer = Signer(keyid_of(public), encoded, name)
        if self._envelope.keyid != keyid_of(public):
            self._wrong(
                "signature",
                "signatures[0].keyid",
                "the signature names another key than the builder's",
                keyid_of(public),
                self._envelope.keyid,
            )
        if not signature_holds(self._envelope, public):
            self._wrong(
                "signature",
                "signatures[0].sig",
                "the signature does not hold for this payload",
                f"a signature by {keyid_of(public)}",
                base64.b64encode(self._envelope.signature).decode(),
            )
        if not name:
            self._wrong(
                "signer",
                "predicate.runDetails.builder.id",
                "signed by a key that you do not know",
                f"one of: {self._trusted.describe()}",
                f"{keyid_of(public)} ({encoded})",
            )

    # ---- one action -----------------------------------------------------------------------------

    def _key(self, action: StatedAction) -> None:
        computed = hash_bytes(dump(action.form))
        if computed != action.key:
            self._wrong(
                "key",
                f"{action.place}.key",
                f"the key of '{action.id}' is not that of its form",
                action.key,
                f"{computed} (recomputed)",
            )

    def _outputs(self, action: StatedAction) -> None:
        declared = {n: (o.get("kind"), o.get("path")) for n, o in action.form["outputs"].items()}
        stated = {n: (o.kind, o.path) for n, o in action.outputs.items()}
        for name in sorted(declared.keys() | stated.keys()):
            if declared.get(name) != stated.get(name):
                self._wrong(
                    "action",
                    f"{action.place}.outputs.{name}",
                    f"output '{name}' of '{action.id}' is not as its form declares it",
                    _pair(declared.get(name)),
                    _pair(stated.get(name)),
                )

    def _wiring(
        self, action: StatedAction, by_id: Mapping[ActionId, StatedAction], sources: Mapping[str, Dependency]
    ) -> None:
        inputs: Mapping[str, Any] = action.form["inputs"]
        for name in sorted(inputs.keys() | action.inputs_from.keys()):
            place = f"{action.place}.inputs_from.{name}"
            what = f"input '{name}' of '{action.id}'"
            stated, origin = inputs.get(name), action.inputs_from.get(name)
            if stated is None or origin is None:
                self._wrong(
                    "wiring",
                    place,
                    f"{what} is in one place only",
                    "in the form and in inputs_from",
                    "in inputs_from only" if stated is None else "in the form only",
                )
                continue
            read = (stated.get("kind"), stated.get("digest"))
            if "action" in origin:
                producer = by_id.get(origin["action"])
                output = producer.outputs.get(origin["output"]) if producer is not None else None
                made = f"output '{origin['output']}' of '{origin['action']}'"
                if output is None:
                    self._wrong(
                        "wiring", place, f"{what} comes from nowhere", made, "no such output in the receipt"
                    )
                    continue
                if output.kind == "file" and stated.get("executable") != output.executable:
                    self._wrong(
                        "wiring",
                        place,
                        f"{what} is not {made}",
                        f"executable: {output.executable}",
                        f"executable: {stated.get('executable')}",
                    )
                wanted: tuple[Any, Any] = (output.kind, output.digest)
            else:
                made = _source_name(origin)
                source = sources.get(made)
                if source is None:
                    self._wrong(
                        "wiring",
                        place,
                        f"{what} comes from nowhere",
                        f"a dependency '{made}'",
                        "none of that name",
                    )
                    continue
                self._read.add(made)
                wanted = ("dir" if source.kind == "dir" else "file", source.digests["blake3"])
            if read != wanted:
                self._wrong("wiring", place, f"{what} is not {made}", _pair(wanted), _pair(read))

    def _surroundings(self, action: StatedAction) -> None:
        """The platform and the toolchain that the form names by digest."""
        platform = action.form.get("platform")
        if platform is not None and platform not in self._statement.platforms:
            self._wrong(
                "platform",
                f"{action.place}.form.platform",
                "the platform is not described",
                platform,
                "nothing",
            )
        toolchain = action.form.get("toolchain")
        if toolchain is not None:
            found = [
                d for d in self._statement.dependencies if d.role == "toolchain" and _names(d, toolchain)
            ]
            self._read.update(d.name for d in found)
            if not found:
                self._wrong(
                    "toolchain",
                    f"{action.place}.form.toolchain",
                    "the toolchain is no dependency",
                    toolchain,
                    "nothing",
                )

    def _records(self, action: StatedAction) -> None:
        name = self.names[action.id]
        quoted = self._statement.records.get(f"realisation/{name}")
        place = f"byproducts: realisation/{name}"
        record = self._quoted(quoted, place, f"the realisation of '{action.id}'")
        expected = Realisation(action.key, action.outputs)
        if record is not None and record.payload != expected.payload():
            self._wrong(
                "realisation",
                place,
                "the signed realisation states other outputs than the action",
                dump(expected.payload()).decode(),
                dump(record.payload).decode(),
            )
        place = f"byproducts: run/{name}"
        quoted = self._statement.records.get(f"run/{name}")
        if quoted is None:
            self._evidence(name, {})
            return
        # a run that cannot be read leaves its evidence unjudged
        prefix = f"evidence/{name}/"
        self._read.update(b for b in self._statement.evidence if b.startswith(prefix))
        record = self._quoted(quoted, place, f"the run of '{action.id}'")
        if record is None:
            return
        try:
            run = RunRecord.parse(record.payload, name=quoted.run, operator=record.keyid)
        except ValueError as error:
            self._wrong("run", place, "the quoted run is malformed", "a run", error)
            return
        if (run.key, run.realisation) != (action.key, expected.digest):
            self._wrong(
                "run",
                place,
                "the quoted run is of something else",
                f"{action.key} -> {expected.digest}",
                f"{run.key} -> {run.realisation}",
            )
        self.runs[name] = run
        self._evidence(name, run.evidence)

    def _quoted(self, quoted: Quoted | None, place: str, what: str) -> Record | None:
        kind = place.partition(" ")[2].partition("/")[0]
        if quoted is None:
            self._wrong(kind, place, f"{what} is missing", "a signed record", "nothing")
            return None
        found = (hash_bytes(quoted.data), hashlib.sha256(quoted.data).hexdigest())
        if found != quoted.digests:
            self._wrong(kind, place, f"{what} has other digests", _pair(quoted.digests), _pair(found))
        try:
            record = open_record(quoted.data, quoted.kind)
        except ValueError as error:
            self._wrong(kind, place, f"{what} is malformed", "a signed record in canonical form", error)
            return None
        public = self.public_of(record.keyid)
        if public is None:
            self._wrong(
                kind,
                place,
                f"{what} is signed by a key that you do not know",
                self._trusted.describe(),
                record.keyid,
            )
        elif not record.verify(public):
            self._wrong(
                kind,
                place,
                f"the signature of {what} does not hold",
                f"a signature by {record.keyid}",
                "another",
            )
        return record

    def _evidence(self, name: str, evidence: Mapping[str, str]) -> None:
        prefix = f"evidence/{name}/"
        expected = {f"{prefix}{path}": digest for path, digest in evidence.items()}
        self._read.update(expected)
        for byproduct in sorted(expected):
            stated = self._statement.evidence.get(byproduct)
            if stated != expected[byproduct]:
                self._wrong(
                    "evidence",
                    f"byproducts: {byproduct}",
                    "the receipt and the signed run differ",
                    f"{expected[byproduct]} (run)",
                    stated or "nothing",
                )

    # ---- the whole ------------------------------------------------------------------------------

    def _leftovers(self) -> None:
        """Whatever no action accounts for should not be in the receipt."""
        for dependency in self._statement.dependencies:
            if dependency.name not in self._read:
                self._wrong(
                    "wiring",
                    f"resolvedDependencies: {dependency.name}",
                    "a dependency that no action reads",
                    "nothing",
                    dependency.role,
                )
        named = {f"{sort}/{name}" for name in self.names.values() for sort in ("realisation", "run")}
        for byproduct in sorted({*self._statement.records, *self._statement.evidence} - named - self._read):
            self._wrong(
                "byproduct", f"byproducts: {byproduct}", "belongs to no action", "nothing", "a byproduct"
            )
        for digest, properties in self._statement.platforms.items():
            computed = platform_digest(restore(properties)) if isinstance(properties, dict) else "no object"
            if computed != digest:
                self._wrong(
                    "platform",
                    f"internalParameters.platforms.{digest}",
                    "the platform's properties have another digest",
                    digest,
                    f"{computed} (recomputed)",
                )

    def _wrong(self, kind: str, place: str, what: str, expected: object, found: object) -> None:
        place = place.removeprefix("predicate.").removeprefix("buildDefinition.")
        self._result.mismatch(kind, f"receipt: {place}", what, expected, found)


def _source_name(origin: Mapping[str, Any]) -> str:
    if "length" in origin:
        return f"{origin['source']}#bytes={origin['offset']}-{origin['offset'] + origin['length']}"
    return str(origin["source"])


def _names(dependency: Dependency, toolchain: str) -> bool:
    """Whether a toolchain dependency is the one that a form names."""
    if dependency.kind == "image":
        return dependency.name == toolchain
    return dependency.digests["blake3"] == toolchain


def _pair(pair: object) -> str:
    if pair is None:
        return "nothing"
    return " ".join(str(part) for part in pair) if isinstance(pair, tuple) else str(pair)
