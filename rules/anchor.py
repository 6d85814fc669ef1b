"""Writes the digest of a run's receipt on a chain (declared; its work is not written yet)."""

from __future__ import annotations

from mxt.rule import Attributes, Config, Labels, Run, StageError, Target, not_yet

VERSION = 1
EFFECT = True
KEYED = ("receipt.anchor.chain", "receipt.anchor.registry")
UNKEYED = ("receipt.anchor.confirmations",)


class Attrs(Attributes):
    """stages: all that the receipt is about."""

    config: Config
    stages: Labels


def actions(target: Target) -> None:
    """One action, run by `mxt run` and not by a build."""
    handles = [h for label in target.attrs.stages for h in target.outputs(label)]
    target.action(
        run=anchor,
        mnemonic="Anchor",
        inputs={"stages": handles},
        outputs={"anchored": "anchored.json"},
        network=True,
        refuse=not_yet(f"anchoring on {target.config['receipt.anchor.chain']}"),
    )


def anchor(run: Run) -> None:
    """Never reached: the action is refused."""
    raise StageError(f"not implemented yet: anchoring on {run.config['receipt.anchor.chain']}")
