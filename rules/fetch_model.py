"""Downloads a model of the Hugging Face Hub by name and commit: weights, settings, tokenizer.

A model that comes with code of its own is refused, unless the recipe trusts exactly this code.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mxt.rule import Attributes, Config, Resources, Run, StageError
from rules._code import CONFIGS, is_code, may_run, not_pinned, refuse_unknown
from rules._gated import needs
from rules._hub import PASSTHROUGH, fetch, place
from rules._model_folder import conversion
from rules._refusals import unpinned
from rules._revisions import IGNORE

if TYPE_CHECKING:
    from mxt.graph.target import Target

VERSION = 1
ESTIMATE = "_estimate.model"
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
    "processor_config.json",
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
        needs=needs(target.config["model.hub.repo"]),
        progress=True,
        refuse=unpinned("model.hub.revision", target.config["model.hub.revision"], target.label)
        or not_pinned(target.config),
    )


def fetch_model(run: Run) -> None:
    """Write the model's folder."""
    repo, revision = run.config["model.hub.repo"], run.config["model.hub.revision"]
    trusted = run.config["model.trust_remote_code"]
    instead = "copy the model's folder into the package and name it in model.path instead of model.hub"

    def fetched(choice: Callable[[Sequence[str]], Sequence[str]]) -> dict[str, Path]:
        return fetch(
            run, "model", repo, revision, lambda names: choice(choose(names, repo, trusted)), instead
        )

    # what decides whether the rest is wanted, before hours of downloading
    settings = fetched(lambda chosen: [n for n in chosen if is_code(n) or n in CONFIGS])
    may_run(settings["config.json"].parent, trusted, f"model '{repo}'")
    for name, path in fetched(lambda chosen: chosen).items():
        place(path, run.outputs["model"] / name)


def choose(names: Sequence[str], repo: str, trusted: str | None = None) -> list[str]:
    """The files of the top folder that make a model, and its code where some may be trusted.

    Raises StageError where there are no safetensors, and for code that nobody has trusted.
    """
    top = [n for n in names if "/" not in n]
    weights: list[str] = []
    for pattern in WEIGHTS:
        weights = weights or fnmatch.filter(top, pattern)
    if not weights:
        others = [n for n in top if n.endswith((".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack"))]
        raise StageError(
            f"model '{repo}' has no safetensors at this commit" + (f", but {others[0]}" if others else ""),
            hint=conversion(others[0]) if others else "it must be a transformers model",
        )
    if "config.json" not in top:
        raise StageError(
            f"model '{repo}' has no config.json at this commit", hint="it must be a transformers model"
        )
    refuse_unknown(names, trusted, f"model '{repo}'")
    companions = [n for n in top if any(fnmatch.fnmatch(n, p) for p in COMPANIONS)]
    code = [n for n in names if is_code(n)] if trusted not in (None, IGNORE) else []
    return sorted({*weights, *companions, *code})
