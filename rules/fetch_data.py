"""Downloads files of a dataset of the Hugging Face Hub by name and commit; each becomes one shard."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from mxt.rule import Attributes, Config, Resources, Run
from rules._gated import needs
from rules._hub import PASSTHROUGH, choose_listed, fetch, place
from rules._pieces import FORMATS, must_be_readable
from rules._refusals import patterns, unpinned
from rules._revisions import is_pattern

if TYPE_CHECKING:
    from mxt.graph.target import Target

VERSION = 1
ESTIMATE = "_estimate.fetch_data"
KEYED = ("data.hub.repo", "data.hub.revision", "data.hub.files")


class Attrs(Attributes):
    """Nothing beside the recipe."""

    config: Config


def actions(target: Target) -> None:
    """One action, with the network and resumable; an output a file."""
    files = target.config["data.hub.files"] or ()
    for name in files:
        must_be_readable(name, "data.hub.files", target.label)
        ending = PurePosixPath(name).suffix
        if ending not in FORMATS and not is_pattern(name):
            raise Run.fail(
                f"data.hub.files: '{name}' is no JSONL or Parquet file",
                where=target.label,
                hint=f"files that end in {', '.join(FORMATS)} can be read",
            )
    if len(set(files)) < len(files):
        twice = next(f for i, f in enumerate(files) if f in files[:i])
        raise Run.fail(f"data.hub.files: '{twice}' is given twice", where=target.label)
    target.action(
        run=fetch_data,
        mnemonic="FetchData",
        outputs={f"{i:04d}": f"{i:04d}{_ending(name)}" for i, name in enumerate(files)},
        resources=Resources(cpus=1, memory_mb=500),
        network=True,
        passthrough=PASSTHROUGH,
        needs=needs(target.config["data.hub.repo"]),
        progress=True,
        refuse=unpinned("data.hub.revision", target.config["data.hub.revision"], target.label)
        or patterns(files, target.label),
    )


def _ending(name: str) -> str:
    """What a file's shard ends in. A pattern has one shard, until `mxt pin` tells how many it stands for."""
    ending = PurePosixPath(name).suffix
    return ending if ending in FORMATS else FORMATS[0]


def fetch_data(run: Run) -> None:
    """Write each file under its number."""
    repo, revision = run.config["data.hub.repo"], run.config["data.hub.revision"]
    files = run.config["data.hub.files"]
    instead = "copy the files into the package and name them in data.files instead of data.hub"
    got = fetch(run, "dataset", repo, revision, choose_listed(files, repo), instead)
    for i, name in enumerate(files):
        place(got[name], run.outputs[f"{i:04d}"])
