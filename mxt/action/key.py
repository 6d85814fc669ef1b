"""The action key: one walk over an action makes the form that is hashed and that `explain` compares.

The form is stored in the CAS under its own digest, so the key *is* the address of its explanation
and the two cannot drift apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from blake3 import blake3

from mxt.action.action import Action
from mxt.action.canonical import canonical, dump

KEY_VERSION = 1


class InputDigest(NamedTuple):
    """What an input turned out to be. kind: "file" or "dir"; executable is False for folders."""

    kind: str
    digest: str
    executable: bool = False


class Key(NamedTuple):
    """digest: 64 hex characters, BLAKE3 of `form`, the canonical bytes."""

    digest: str
    form: bytes


def action_form(action: Action, inputs: Mapping[str, InputDigest]) -> dict[str, Any]:
    """The canonical object of an action. inputs: by input name.

    Raises MxtError where a parameter has no canonical form.
    """
    return {
        "version": KEY_VERSION,
        "entry": action.entry,
        "implementation": canonical(action.implementation),
        "params": canonical(action.params),
        "config": canonical(action.config),
        "inputs": {
            i.name: {
                "digest": inputs[i.name].digest,
                "executable": inputs[i.name].executable,
                "kind": inputs[i.name].kind,
                "path": i.path,
            }
            for i in action.inputs
        },
        "outputs": {o.name: {"kind": o.kind, "path": o.path} for o in action.outputs},
        "toolchain": action.toolchain,
        "platform": action.platform,
        "environment": dict(action.environment),
    }


def action_key(action: Action, inputs: Mapping[str, InputDigest]) -> Key:
    """The key of an action whose inputs are known."""
    form = dump(action_form(action, inputs))
    return Key(blake3(form).hexdigest(), form)
