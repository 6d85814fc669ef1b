"""Verifies a receipt: recomputes everything that it states and collects all that does not agree."""

from __future__ import annotations

import os
import time
from pathlib import Path

from mxt.receipt.check_statement import StatementCheck
from mxt.receipt.check_store import StoreCheck
from mxt.receipt.check_workspace import WorkspaceCheck
from mxt.receipt.dsse import Envelope, UnreadableError, signature_holds
from mxt.receipt.findings import Result
from mxt.receipt.given import Given
from mxt.receipt.hashing import Hashing, Progress
from mxt.receipt.receipt import parse_statement, read_envelope
from mxt.receipt.trust import TrustedKeys
from mxt.store.digest import hash_bytes
from mxt.store.layout import Layout
from mxt.store.signing import keyid_of


def verify_receipt(
    path: Path, *, workspace: Path, store: Path, trusted: TrustedKeys, progress: Progress | None = None
) -> Result:
    """Check the receipt at path against itself, the store and the workspace; changes nothing.

    progress: called with (bytes read, bytes to read) from several threads, one at a time.
    Raises UnreadableError where there is no receipt in canonical form.
    """
    began = time.monotonic()
    envelope = read_envelope(path)
    result = Result(str(path), digest=hash_bytes(envelope.payload))
    try:
        statement = parse_statement(envelope.payload)
    except UnreadableError as error:
        _malformed(envelope, error, trusted, result)
        result.wall_s = time.monotonic() - began
        return result
    result.target = statement.target
    result.actions = len(statement.actions)
    result.started, result.finished = statement.started, statement.finished

    def show(place: str | os.PathLike[str]) -> str:
        relative = os.path.relpath(place, workspace)
        return relative if not relative.startswith("..") else os.fspath(place)

    layout = Layout(store)
    hashing = Hashing()
    alone = StatementCheck(envelope, statement, trusted, result)
    alone.check()
    given = Given(statement, layout, hashing, result, show)
    in_store = StoreCheck(given)
    in_workspace = WorkspaceCheck(given, workspace)
    in_store.plan(alone.names, alone.runs, alone.public_of)
    in_workspace.plan()
    hashing.run(progress)
    in_store.compare()
    in_store.compare_sha256()
    in_workspace.compare()
    in_workspace.links(path, alone.names)
    result.hashed_bytes = hashing.total
    result.wall_s = time.monotonic() - began
    return result


def _malformed(envelope: Envelope, error: UnreadableError, trusted: TrustedKeys, result: Result) -> None:
    """A payload that is no statement of mxt: say so, and whether it was at least signed like that."""
    place = error.where or "the whole"
    result.mismatch(
        "statement", f"receipt: {place}", error.message, "a statement as mxt writes it", "another"
    )
    public = trusted.by_id(envelope.keyid)
    if public is None:
        result.mismatch(
            "signer",
            "receipt: signatures[0].keyid",
            "signed by a key that you do not know",
            trusted.describe(),
            envelope.keyid,
        )
    elif not signature_holds(envelope, public):
        result.mismatch(
            "signature",
            "receipt: signatures[0].sig",
            "the signature does not hold for this payload",
            f"a signature by {keyid_of(public)}",
            "another",
        )
