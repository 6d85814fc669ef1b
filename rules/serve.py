"""Serves the result behind an OpenAI-compatible address (declared; its work is not written yet)."""

from __future__ import annotations

from mxt.rule import Attributes, Config, Label, Run, StageError, Target, not_yet

VERSION = 1
EFFECT = True
KEYED = ("hardware.gpus", "hardware.env", "serve.engine", "serve.max_length", "serve.tool_parser")
UNKEYED = ("serve.host", "serve.port", "serve.memory_fraction", "hardware.price_per_hour")


class Attrs(Attributes):
    """model: a model folder. adapter: applied to it. quantized: served in their place. plan: training's."""

    config: Config
    model: Label
    adapter: Label | None = None
    quantized: Label | None = None
    plan: Label | None = None


def actions(target: Target) -> None:
    """One action, run by `mxt run` and not by a build."""
    attrs = target.attrs
    inputs = {"model": attrs.quantized or attrs.model}
    if attrs.adapter is not None and attrs.quantized is None:
        inputs["adapter"] = attrs.adapter
    if attrs.plan is not None:
        inputs["plan"] = target.source(attrs.plan)._replace(path="plan.json")
    target.action(
        run=serve,
        mnemonic="Serve",
        inputs=inputs,
        outputs={"served": "served.json"},
        environment=target.config["hardware.env"],
        refuse=not_yet(f"serving with {target.config['serve.engine']}"),
    )


def serve(run: Run) -> None:
    """Never reached: the action is refused."""
    raise StageError(f"not implemented yet: serving with {run.config['serve.engine']}")
