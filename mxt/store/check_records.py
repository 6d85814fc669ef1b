"""The signed records of a store as a check finds them: realisations, runs, and those that do not hold."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field

from mxt.store.check_blobs import Damage
from mxt.store.layout import Layout, is_sealed
from mxt.store.mark import listing
from mxt.store.realisation import Realisation, RunRecord
from mxt.store.records import REALISATION_TYPE, RUN_TYPE, Record, open_record

# a raw public key by its operator's fingerprint, if this store knows it
PublicKey = Callable[[str], bytes | None]


@dataclass
class Records:
    """realisations: by key, in order of their file names; divergences apart, for their bytes may be gone.

    foreign: how many are signed by operators whose key is not known here: kept, not believed.
    """

    realisations: dict[str, list[Realisation]] = field(default_factory=dict)
    divergences: dict[str, list[Realisation]] = field(default_factory=dict)
    runs: dict[str, list[RunRecord]] = field(default_factory=dict)
    damages: list[Damage] = field(default_factory=list)
    foreign: int = 0


def read_records(layout: Layout, public_key: PublicKey, own: str, *, quick: bool) -> Records:
    """All records. own: this operator's fingerprint. quick: sealed records of our own are not verified."""
    found = Records()
    reader = _Reader(layout, public_key, own, quick, found)
    for outer in listing(layout.root / "ac"):
        for folder in listing(outer):
            for path in listing(folder):
                operator = path.name.partition(".")[0]
                record = reader.read(str(path), REALISATION_TYPE, operator)
                if record is not None:
                    reader.realisation(str(path), folder.name, record)
    for outer in listing(layout.root / "runs"):
        for folder in listing(outer):
            for path in listing(folder):
                record = reader.read(str(path), RUN_TYPE, "")
                if record is not None:
                    reader.run(str(path), folder.name, record)
    return found


class _Reader:
    def __init__(self, layout: Layout, public_key: PublicKey, own: str, quick: bool, found: Records) -> None:
        self.layout = layout
        self.public_key = public_key
        self.own = own
        self.quick = quick
        self.found = found

    def read(self, path: str, kind: str, operator: str) -> Record | None:
        """A record that holds. operator: who must have signed it; "" for anybody."""
        try:
            with open(path, "rb") as file:
                data = file.read()
                facts = os.fstat(file.fileno())
        except FileNotFoundError:  # a gc or a repair took it away
            return None
        except OSError as error:
            self.wrong(path, f"cannot be read: {(error.strerror or '').lower()}")
            return None
        try:
            record = open_record(data, kind)
        except ValueError as error:
            self.wrong(path, f"is no signed record: {error}")
            return None
        if operator and record.keyid != operator:
            self.wrong(path, f"is signed by {record.keyid[:12]}, not by whom its name says")
            return None
        if self.quick and record.keyid == self.own and is_sealed(facts):
            return record
        public = self.public_key(record.keyid)
        if public is None:
            self.found.foreign += 1
            return None
        if not record.verify(public):
            self.wrong(path, "has a signature that does not hold")
            return None
        return record

    def realisation(self, path: str, key: str, record: Record) -> None:
        try:
            realisation = Realisation.parse(record.payload, record.keyid)
        except ValueError as error:
            self.wrong(path, f"is no realisation: {error}")
            return
        if realisation.key != key:
            self.wrong(path, f"belongs to another key, {realisation.key[:12]}")
            return
        place = self.found.divergences if ".divergence-" in path else self.found.realisations
        found = place.setdefault(key, [])
        found.insert(0 if record.keyid == self.own else len(found), realisation)

    def run(self, path: str, key: str, record: Record) -> None:
        name = os.path.basename(path).removesuffix(".json")
        try:
            run = RunRecord.parse(record.payload, name=name, operator=record.keyid)
        except ValueError as error:
            self.wrong(path, f"is no run: {error}")
            return
        if run.key != key:
            self.wrong(path, f"belongs to another key, {run.key[:12]}")
            return
        self.found.runs.setdefault(key, []).append(run)

    def wrong(self, path: str, what: str) -> None:
        place = os.path.relpath(path, self.layout.root)
        key = place.split("/")[2] if place.count("/") >= 3 else ""
        try:
            facts = os.lstat(path)
        except OSError:
            return
        judged = (facts.st_ino, facts.st_ctime_ns)
        self.found.damages.append(Damage("record", place, what, "", (key,) if key else (), judged))
