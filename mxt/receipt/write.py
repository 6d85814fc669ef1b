"""Writes the receipt of a finished target, unless the one that is there says the same already."""

from __future__ import annotations

import base64
import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mxt.action.canonical import load
from mxt.receipt.dsse import Envelope, UnreadableError, decode, encode, seal, signature_holds
from mxt.receipt.statement import Built, Invocation, build_statement, external_parameters, internal_parameters
from mxt.store.action_cache import ActionCache
from mxt.store.digest import hash_bytes
from mxt.store.layout import write_atomic
from mxt.store.os_errors import explain_os_error
from mxt.store.replace_file import replace_file
from mxt.store.signing import OperatorKey


@dataclass(frozen=True)
class Written:
    """digest: the receipt's name. changed: False where the file that was there is kept."""

    path: Path
    digest: str
    changed: bool


def write_receipt(
    path: Path, built: Built, invocation: Invocation, *, workspace: Path, cache: ActionCache, key: OperatorKey
) -> Written:
    """Sign and write the receipt of a finished target, atomically; its folder is made.

    A receipt by the same operator that is whole and describes the same actions and results stays
    untouched: a build that did nothing leaves nothing new. Raises StoreError.
    """
    kept = _current(path, built, workspace, cache, key)
    if kept is not None:
        return Written(path, hash_bytes(kept.payload), changed=False)
    from mxt import __version__

    payload = build_statement(
        built, invocation, workspace=workspace, cache=cache, public=key.public, version=__version__
    )
    data = encode(seal(payload, key))
    with explain_os_error("write the receipt", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, data)
    _remember(path, data, cache)
    return Written(path, hash_bytes(payload), changed=True)


def _current(
    path: Path, built: Built, workspace: Path, cache: ActionCache, key: OperatorKey
) -> Envelope | None:
    """The envelope at path if it is whole, this operator's, and says what a new one would say."""
    try:
        data = path.read_bytes()
        envelope = decode(data)
        statement = load(envelope.payload)
        definition: Any = statement["predicate"]["buildDefinition"]
        same = (
            envelope.keyid == key.keyid
            and definition["externalParameters"] == external_parameters(built, workspace)
            and definition["internalParameters"] == internal_parameters(built)
            and _still_there(statement["predicate"]["runDetails"]["byproducts"], cache)
        )
    except (OSError, UnreadableError, ValueError, RecursionError, KeyError, TypeError):
        return None
    if not same:
        return None
    if _remembered(path, cache) == hash_bytes(data):
        return envelope
    # checking a signature loads a cryptography library, which costs more than a whole null build
    if not signature_holds(envelope, key.public):
        return None
    _remember(path, data, cache)
    return envelope


def _still_there(byproducts: Any, cache: ActionCache) -> bool:
    """Whether the store holds the records that a receipt quotes, as it quotes them, with their evidence."""
    layout = cache.layout
    for one in byproducts:
        sort = one["name"].partition("/")[0]
        if sort == "evidence":
            continue
        data = base64.b64decode(one["content"])
        record = load(data)
        key = record["payload"]["key"]
        if sort == "run":
            name = one["annotations"]["run"]
            place = layout.runs(key) / f"{name}.json"
            folder = layout.evidence(key, name)
            if not all((folder / path).exists() for path in record["payload"]["evidence"]):
                return False
        else:
            place = layout.action(key) / f"{record['keyid']}.json"
        if place.read_bytes() != data:
            return False
    return True


def _remember(path: Path, data: bytes, cache: ActionCache) -> None:
    with contextlib.suppress(OSError):
        write_atomic(cache.layout, _memory(path, cache), hash_bytes(data).encode())


def _remembered(path: Path, cache: ActionCache) -> str | None:
    try:
        return _memory(path, cache).read_text("ascii")
    except (OSError, ValueError):
        return None


def _memory(path: Path, cache: ActionCache) -> Path:
    """Where the digest of the file last seen whole at path is kept; moves with the workspace."""
    relative = os.path.relpath(os.path.abspath(path), cache.layout.root)
    return cache.layout.state / "receipts" / hash_bytes(os.fsencode(relative))
