"""Puts the result on the Hugging Face Hub or on IPFS (declared; its work is not written yet)."""

from __future__ import annotations

from mxt.rule import Attributes, Config, Label, Run, StageError, Target, not_yet

VERSION = 1
EFFECT = True
KEYED = ("publish.hub", "publish.private", "publish.ipfs", "publish.license")
UNKEYED = ("meta.description",)


class Attrs(Attributes):
    """model: a model folder. adapter: published in its place. quantized: beside it. card: Markdown."""

    config: Config
    model: Label
    adapter: Label | None = None
    quantized: Label | None = None
    card: Label | None = None


def actions(target: Target) -> None:
    """One action, run by `mxt run` and not by a build."""
    attrs = target.attrs
    inputs = {"model": attrs.adapter or attrs.model}
    if attrs.quantized is not None:
        inputs["quantized"] = attrs.quantized
    if attrs.card is not None:
        inputs["card"] = attrs.card
    target.action(
        run=publish,
        mnemonic="Publish",
        inputs=inputs,
        outputs={"published": "published.json"},
        network=True,
        passthrough=("HF_TOKEN", "HF_ENDPOINT", "LIGHTHOUSE_TOKEN"),
        refuse=not_yet(f"publishing to {'the Hub' if target.config['publish.hub'] else 'IPFS'}"),
    )


def publish(run: Run) -> None:
    """Never reached: the action is refused."""
    raise StageError(f"not implemented yet: publishing to {run.config['publish.hub'] or 'IPFS'}")
