"""Downloads files of a dataset of the Hugging Face Hub by name and commit; each becomes one shard."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from mxt.rule import Attributes, Config, Resources, Run
from rules._hub import PASSTHROUGH, choose_listed, fetch, place
from rules._refusals import unpinned

if TYPE_CHECKING:
    from mxt.graph.target import Target

VERSION = 1
KEYED = ("data.hub.repo", "data.hub.revision", "data.hub.files")
FORMATS = (".jsonl", ".json", ".parquet")


class Attrs(Attributes):
    """Nothing beside the recipe."""

    config: Config


def actions(target: Target) -> None:
    """One action, with the network and resumable; an output a file."""
    files = target.config["data.hub.files"] or ()
    for name in files:
        if PurePosixPath(name).suffix not in FORMATS:
            raise Run.fail(
                f"data.hub.files: '{name}' is no JSONL or Parquet file",
                where=target.label,
                hint=f"files that end in {', '.join(FORMATS)} can be read",
            )
    target.action(
        run=fetch_data,
        mnemonic="FetchData",
        outputs={f"{i:04d}": f"{i:04d}{PurePosixPath(name).suffix}" for i, name in enumerate(files)},
        resources=Resources(cpus=1, memory_mb=500),
        network=True,
        passthrough=PASSTHROUGH,
        progress=True,
        refuse=unpinned("data.hub.revision", target.config["data.hub.revision"]),
    )


def fetch_data(run: Run) -> None:
    """Write each file under its number."""
    repo, revision = run.config["data.hub.repo"], run.config["data.hub.revision"]
    files = run.config["data.hub.files"]
    instead = "copy the files into the package and name them in data.files instead of data.hub"
    got = fetch(run, "dataset", repo, revision, choose_listed(files, repo), instead)
    for i, name in enumerate(files):
        place(got[name], run.outputs[f"{i:04d}"])
