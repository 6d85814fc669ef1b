"""Other people's tools read a receipt: securesystemslib the envelope, in-toto-attestation the statement."""

from __future__ import annotations

import base64
import copy
import hashlib
import json

import pytest
from google.protobuf import json_format
from in_toto_attestation.predicates.provenance.v1.provenance_pb2 import Provenance
from in_toto_attestation.v1.statement import Statement
from in_toto_attestation.v1.statement_pb2 import Statement as StatementProto
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import SSlibKey

from tests.receipt.conftest import World


def operator_key(world: World) -> SSlibKey:
    key = world.store.key
    return SSlibKey(key.keyid, "ed25519", "ed25519", {"public": key.public.hex()})


def test_securesystemslib_verifies_the_envelope(world: World) -> None:
    form = json.loads(world.receipt.read_bytes())
    envelope = Envelope.from_dict(copy.deepcopy(form))
    assert list(envelope.verify([operator_key(world)], 1)) == [world.store.key.keyid]
    envelope.payload = envelope.payload.replace(b"train", b"drain")
    with pytest.raises(VerificationError):
        envelope.verify([operator_key(world)], 1)


def test_in_toto_attestation_reads_statement_and_provenance(world: World) -> None:
    payload = base64.b64decode(json.loads(world.receipt.read_bytes())["payload"])
    proto = json_format.Parse(payload, StatementProto())  # unknown fields are errors
    Statement.copy_from_pb(proto).validate()
    weights = next(s for s in proto.subject if s.name == "train/adapter/weights.bin")
    assert weights.digest["sha256"] == hashlib.sha256(b"weights" * 1000).hexdigest()
    provenance = json_format.ParseDict(json_format.MessageToDict(proto.predicate), Provenance())
    assert provenance.build_definition.external_parameters["target"] == "//recipes:x"
    assert provenance.run_details.metadata.started_on.ToJsonString() == "2026-11-21T07:00:00Z"
    assert {d.name for d in provenance.build_definition.resolved_dependencies} >= {
        "recipes/x.yaml",
        "toolchains/cpu.lock",
    }
