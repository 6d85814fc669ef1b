"""What is installed in a site-packages folder: each distribution, its files and their digest."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from mxt.action.toolchain_lock import normalise

SUFFIX = ".dist-info"


class Row(NamedTuple):
    """One file of a distribution. path: relative to site-packages. hash: "sha256=..." or "". size: text."""

    path: str
    hash: str
    size: str


@dataclass(frozen=True)
class Installed:
    """A distribution on disk. folder: its .dist-info folder's name inside site."""

    site: Path
    folder: str
    name: str
    version: str

    @property
    def record(self) -> str:
        """The path of its RECORD, the list of its files."""
        return f"{self.site}/{self.folder}/RECORD"

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """Its files as RECORD lists them. Raises OSError or ValueError where that cannot be read."""
        with open(self.record, encoding="utf-8", newline="") as file:
            text = file.read()
        # csv only where a name needed quoting: 56,000 rows are read before a first action
        if '"' in text:
            return tuple(Row(*row) for row in csv.reader(text.splitlines()) if row)
        rows = []
        for line in text.splitlines():
            if line:
                path, hash_, size = line.rsplit(",", 2)
                rows.append(Row(path, hash_, size))
        return tuple(rows)

    @cached_property
    def kept(self) -> tuple[Row, ...]:
        """The rows that are the same on every machine and that an action can read, sorted."""
        return tuple(sorted(row for row in self.rows if self._keeps(row.path)))

    def contents_digest(self) -> str:
        """BLAKE3 over the kept rows, a line "path,hash,size" each."""
        from blake3 import blake3

        return blake3("".join(f"{r.path},{r.hash},{r.size}\n" for r in self.kept).encode()).hexdigest()

    def _keeps(self, path: str) -> bool:
        # outside site-packages lie console scripts (they hold the interpreter's path) and manual pages
        if path.startswith(("../", "/")) or path.endswith(".pyc"):
            return False
        # of the metadata only entry points change what runs: the rest names the installer (INSTALLER,
        # REQUESTED, direct_url.json, RECORD) or, for what was built from source, the build tool's version
        return not path.startswith(self.folder + "/") or path.endswith("/entry_points.txt")


def installed(site: Path) -> Iterator[Installed]:
    """Every distribution in a site-packages folder, in no order. Raises OSError where it can't be listed."""
    with os.scandir(site) as entries:
        for entry in entries:
            stem, suffix, rest = entry.name.rpartition(SUFFIX)
            if suffix and not rest:
                name, _, version = stem.partition("-")
                yield Installed(site, entry.name, normalise(name), version)
