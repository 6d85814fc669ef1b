"""What the dataset's files weigh."""

from __future__ import annotations

from mxt.estimates import Asked, Estimate, Figure
from rules._estimate.text import known_dataset


def estimate(asked: Asked) -> Estimate:
    hub = asked.recipe["data"]["hub"]
    known = known_dataset(hub["repo"], hub["files"])
    if known is None:
        return Estimate(unknown=[f"download of {hub['repo']}: its size is not known before"])
    if known.download:
        return Estimate([Figure("download", known.download, "bytes", "known of the dataset")])
    return Estimate([Figure("download", f"less than {known.stored / 2**30:.2g} GiB, its size unpacked")])
