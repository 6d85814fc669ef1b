"""Downloads a model of the Hugging Face Hub by name and commit: weights, settings, tokenizer, no code."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mxt.rule import Attributes, Config, Resources, Run, StageError
from rules._hub import PASSTHROUGH, fetch, place
from rules._refusals import unpinned

if TYPE_CHECKING:
    from mxt.graph.target import Target

VERSION = 1
KEYED = ("model.hub.repo", "model.hub.revision", "model.trust_remote_code")
WEIGHTS = ("model*.safetensors", "*.safetensors")  # the first that finds something
COMPANIONS = (
    "config.json",
    "generation_config.json",
    "model*.safetensors.index.json",
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "*.model",
    "chat_template.*",
    "preprocessor_config.json",
    "LICENSE*",
)


class Attrs(Attributes):
    """Nothing beside the recipe."""

    config: Config


def actions(target: Target) -> None:
    """One action, with the network and resumable."""
    target.action(
        run=fetch_model,
        mnemonic="FetchModel",
        outputs={"model": "model/"},
        resources=Resources(cpus=1, memory_mb=500),
        network=True,
        passthrough=PASSTHROUGH,
        progress=True,
        refuse=unpinned("model.hub.revision", target.config["model.hub.revision"]),
    )


def fetch_model(run: Run) -> None:
    """Write the model's folder."""
    repo, revision = run.config["model.hub.repo"], run.config["model.hub.revision"]
    instead = "copy the model's folder into the package and name it in model.path instead of model.hub"
    got = fetch(run, "model", repo, revision, lambda names: choose(names, repo), instead)
    for name, path in got.items():
        place(path, run.outputs["model"] / name)


def choose(names: Sequence[str], repo: str) -> list[str]:
    """The files of the top folder that make a model. Raises StageError where there are no safetensors."""
    top = [n for n in names if "/" not in n]
    weights: list[str] = []
    for pattern in WEIGHTS:
        weights = weights or fnmatch.filter(top, pattern)
    if not weights:
        others = [n for n in top if n.endswith((".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack"))]
        raise StageError(
            f"model '{repo}' has no safetensors at this commit" + (f", but {others[0]}" if others else ""),
            hint="other formats are not loaded, pickles can run code; look for a converted one",
        )
    if "config.json" not in top:
        raise StageError(
            f"model '{repo}' has no config.json at this commit", hint="it must be a transformers model"
        )
    companions = [n for n in top if any(fnmatch.fnmatch(n, p) for p in COMPANIONS)]
    return sorted({*weights, *companions})
