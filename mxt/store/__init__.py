"""The store: everything that mxt keeps, found by content or by action key.

Names are imported when they are first used: a build that needs only the index loads nothing else.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mxt.store.action_cache import ActionCache as ActionCache
    from mxt.store.action_cache import Outcome as Outcome
    from mxt.store.action_cache import Recorded as Recorded
    from mxt.store.action_cache import run_name as run_name
    from mxt.store.cas import Cas as Cas
    from mxt.store.cas import MissingBlob as MissingBlob
    from mxt.store.digest import Digest as Digest
    from mxt.store.digest import FileHash as FileHash
    from mxt.store.digest import hash_bytes as hash_bytes
    from mxt.store.digest import hash_file as hash_file
    from mxt.store.file_index import FileIndex as FileIndex
    from mxt.store.file_index import SourceFile as SourceFile
    from mxt.store.file_index import SourceTree as SourceTree
    from mxt.store.gc import Swept as Swept
    from mxt.store.gc import pin as pin
    from mxt.store.gc import unpin as unpin
    from mxt.store.gpu_lock import acquire_gpus as acquire_gpus
    from mxt.store.history import History as History
    from mxt.store.layout import Layout as Layout
    from mxt.store.lease import Lease as Lease
    from mxt.store.lock import Lock as Lock
    from mxt.store.materialise import Outputs as Outputs
    from mxt.store.os_errors import explain_os_error as explain_os_error
    from mxt.store.progress import Checkpoint as Checkpoint
    from mxt.store.progress import Checkpoints as Checkpoints
    from mxt.store.realisation import Output as Output
    from mxt.store.realisation import Realisation as Realisation
    from mxt.store.realisation import RunRecord as RunRecord
    from mxt.store.records import REALISATION_TYPE as REALISATION_TYPE
    from mxt.store.records import RUN_TYPE as RUN_TYPE
    from mxt.store.records import Record as Record
    from mxt.store.records import open_record as open_record
    from mxt.store.records import sign_record as sign_record
    from mxt.store.signing import OperatorKey as OperatorKey
    from mxt.store.signing import keyid_of as keyid_of
    from mxt.store.signing import load_or_create_key as load_or_create_key
    from mxt.store.signing import pae as pae
    from mxt.store.signing import verify_signature as verify_signature
    from mxt.store.slices import Slice as Slice
    from mxt.store.slices import copy_slice as copy_slice
    from mxt.store.store import Store as Store
    from mxt.store.tree import TreeInfo as TreeInfo
    from mxt.store.tree import digest_tree as digest_tree
    from mxt.store.tree import materialise_tree as materialise_tree
    from mxt.store.tree import read_tree as read_tree
    from mxt.store.tree import store_tree as store_tree
    from mxt.store.tree import walk_tree as walk_tree
    from mxt.store.tree_object import Entry as Entry

_WHERE = {
    "action_cache": ("ActionCache", "Outcome", "Recorded", "run_name"),
    "cas": ("Cas", "MissingBlob"),
    "digest": ("Digest", "FileHash", "hash_bytes", "hash_file"),
    "file_index": ("FileIndex", "SourceFile", "SourceTree"),
    "gc": ("Swept", "pin", "unpin"),
    "history": ("History",),
    "layout": ("Layout",),
    "lease": ("Lease",),
    "lock": ("Lock",),
    "gpu_lock": ("acquire_gpus",),
    "materialise": ("Outputs",),
    "os_errors": ("explain_os_error",),
    "progress": ("Checkpoint", "Checkpoints"),
    "realisation": ("Output", "Realisation", "RunRecord"),
    "records": ("REALISATION_TYPE", "RUN_TYPE", "Record", "open_record", "sign_record"),
    "signing": ("OperatorKey", "keyid_of", "load_or_create_key", "pae", "verify_signature"),
    "slices": ("Slice", "copy_slice"),
    "store": ("Store",),
    "tree_object": ("Entry",),
    "tree": (
        "TreeInfo",
        "digest_tree",
        "materialise_tree",
        "read_tree",
        "store_tree",
        "walk_tree",
    ),
}
_MODULE = {name: module for module, names in _WHERE.items() for name in names}

__all__ = [
    "REALISATION_TYPE",
    "RUN_TYPE",
    "ActionCache",
    "Cas",
    "Checkpoint",
    "Checkpoints",
    "Digest",
    "Entry",
    "FileHash",
    "FileIndex",
    "History",
    "Layout",
    "Lease",
    "Lock",
    "MissingBlob",
    "OperatorKey",
    "Outcome",
    "Output",
    "Outputs",
    "Realisation",
    "Record",
    "Recorded",
    "RunRecord",
    "Slice",
    "SourceFile",
    "SourceTree",
    "Store",
    "Swept",
    "TreeInfo",
    "acquire_gpus",
    "copy_slice",
    "digest_tree",
    "explain_os_error",
    "hash_bytes",
    "hash_file",
    "keyid_of",
    "load_or_create_key",
    "materialise_tree",
    "open_record",
    "pae",
    "pin",
    "read_tree",
    "run_name",
    "sign_record",
    "store_tree",
    "unpin",
    "verify_signature",
    "walk_tree",
]


def __getattr__(name: str) -> Any:
    module = _MODULE.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
