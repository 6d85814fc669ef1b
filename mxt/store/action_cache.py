"""The action cache: action key -> realisations, each signed by its operator, and the runs behind them.

    ac/ab/<key>/<operator>.json                  the current realisation of that operator
    ac/ab/<key>/<operator>.divergence-<n>.json   what a rebuild gave that differed
    runs/ab/<key>/<started>-<nonce>.json         how each came about

Nothing is ever overwritten in silence: the first realisation stays current, unless its bytes are gone.
A record that is as mxt left it (see layout.SEAL_NS) and our own is taken as it is; every other one has
its signature checked, and one that does not hold is set aside and is a miss.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from mxt.errors import StoreError
from mxt.store.cas import Cas
from mxt.store.layout import Layout, is_sealed, make_parent, write_aside
from mxt.store.os_errors import explain_os_error
from mxt.store.realisation import Realisation, RunRecord
from mxt.store.records import REALISATION_TYPE, RUN_TYPE, Record, open_record, sign_record
from mxt.store.signing import OperatorKey, keyid_of
from mxt.store.tree import tree_present


class Outcome(Enum):
    """What recording a realisation came to."""

    FIRST = "first"  # the key had none of this operator
    SAME = "same"  # it had this very one
    DIVERGED = "diverged"  # it had another one, which stays current
    REPLACED = "replaced"  # it had another one whose bytes are gone; that one is kept as the divergence


class Recorded(NamedTuple):
    """outcome, and the realisation that is current now (another than the one recorded if it diverged)."""

    outcome: Outcome
    current: Realisation


class ActionCache:
    """Realisations and runs of one store. key: called when the operator's key is first needed."""

    def __init__(self, layout: Layout, cas: Cas, key: Callable[[], OperatorKey]) -> None:
        self.layout = layout
        self.cas = cas
        self._key = key
        self._published: set[str] = set()

    # looking up

    def lookup(self, key: str) -> Realisation | None:
        """The realisation of an action key: this operator's, else another's, by name. None is a miss.

        Says nothing about the bytes: see `outputs_present`.
        """
        folder = self.layout.action(key)
        own = self._key().keyid
        found = self._read(f"{folder}/{own}.json", key, own)
        if found is not None:
            return found
        try:
            names = sorted(os.listdir(folder))
        except OSError:
            return None
        for name in names:
            operator = name.removesuffix(".json")
            if operator != own and len(operator) == 32 and name.endswith(".json"):
                found = self._read(f"{folder}/{name}", key, operator)
                if found is not None:
                    return found
        return None

    def divergences(self, key: str) -> list[Realisation]:
        """All realisations of a key that differ from the current one of their operator."""
        folder = self.layout.action(key)
        out = []
        for name in _names(folder):
            operator, dot, rest = name.partition(".divergence-")
            if dot and rest.endswith(".json"):
                found = self._read(f"{folder}/{name}", key, operator)
                if found is not None:
                    out.append(found)
        return out

    def outputs_present(self, realisation: Realisation) -> bool:
        """Whether all its bytes are in the store, with the right sizes; folders all the way down."""
        for output in realisation.outputs.values():
            if output.kind == "dir":
                if not tree_present(self.cas, output.digest):
                    return False
            elif not self.cas.has(output.digest, output.size):
                return False
        return True

    def runs(self, key: str) -> list[RunRecord]:
        """The runs of a key, oldest first; unreadable ones are left out."""
        folder = self.layout.runs(key)
        out = []
        for name in _names(folder):
            if not name.endswith(".json"):
                continue
            record = self._record(f"{folder}/{name}", RUN_TYPE)
            if record is None:
                continue
            with contextlib.suppress(ValueError):
                run = RunRecord.parse(record.payload, name=name[: -len(".json")], operator=record.keyid)
                if run.key == key:
                    out.append(run)
        return out

    def latest_run(self, key: str) -> RunRecord | None:
        """The newest run of a key."""
        runs = self.runs(key)
        return runs[-1] if runs else None

    def public_key(self, operator: str) -> bytes | None:
        """The raw public key of an operator whose records this store holds, by its fingerprint."""
        own = self._key()
        if operator == own.keyid:
            return own.public
        try:
            public = bytes.fromhex((self.layout.state / "operators" / operator).read_text("ascii"))
        except (OSError, ValueError):
            return None
        return public if keyid_of(public) == operator else None

    # recording

    def record(self, realisation: Realisation, run: RunRecord) -> Recorded:
        """Sign and store a run, then the realisation that it made, each atomically.

        run.name may be empty: one is made up. Raises StoreError where the store cannot be written.
        """
        key = self._key()
        self._publish(key)
        name = run.name or run_name(run.started)
        with explain_os_error("record what an action made", self.layout.root):
            signed = sign_record(key, RUN_TYPE, run.payload())
            self._write_new(f"{self.layout.runs(run.key)}/{name}.json", signed)
            data = sign_record(key, REALISATION_TYPE, realisation.payload())
            return self._record_realisation(realisation, data, key.keyid)

    def _record_realisation(self, realisation: Realisation, data: bytes, operator: str) -> Recorded:
        folder = self.layout.action(realisation.key)
        place = f"{folder}/{operator}.json"
        for _ in range(100):
            if self._write_new(place, data):
                return Recorded(Outcome.FIRST, realisation)
            current = self._read(place, realisation.key, operator)
            if current is None:
                continue  # it was damaged and is set aside now
            if current.outputs == realisation.outputs:
                return Recorded(Outcome.SAME, current)
            if self.outputs_present(current):
                self._keep_divergence(folder, operator, realisation, data)
                return Recorded(Outcome.DIVERGED, current)
            with open(place, "rb") as file:
                self._keep_divergence(folder, operator, current, file.read())
            aside = write_aside(self.layout, data, mode=0o444, sealed=True)
            os.rename(aside, place)
            return Recorded(Outcome.REPLACED, realisation)
        raise StoreError("a damaged record cannot be replaced", where=place, hint="remove it by hand")

    def _keep_divergence(self, folder: Path, operator: str, realisation: Realisation, data: bytes) -> None:
        number = 1
        while not self._write_new(place := f"{folder}/{operator}.divergence-{number}.json", data):
            known = self._read(place, realisation.key, operator)
            if known is not None and known.outputs == realisation.outputs:
                return
            number += known is not None

    def _write_new(self, place: str, data: bytes) -> bool:
        """Write a sealed record in one step; False if there is one already."""
        aside = write_aside(self.layout, data, mode=0o444, sealed=True)
        try:
            make_parent(place)  # a folder for each key: it is missing as a rule
            try:
                os.link(aside, place)
            except FileExistsError:
                return False
            return True
        finally:
            os.unlink(aside)

    def _publish(self, key: OperatorKey) -> None:
        """Leave the public key in the store, so that others can check this operator's records."""
        if key.keyid in self._published:
            return
        place = self.layout.state / "operators" / key.keyid
        if not place.exists():
            with explain_os_error("record what an action made", self.layout.root):
                self._write_new(str(place), key.public.hex().encode())
        self._published.add(key.keyid)

    # reading

    def _read(self, place: str, key: str, operator: str) -> Realisation | None:
        record = self._record(place, REALISATION_TYPE, operator)
        if record is None:
            return None
        try:
            realisation = Realisation.parse(record.payload, operator)
        except ValueError:
            realisation = None
        if realisation is None or realisation.key != key:
            self._set_aside(place)
            return None
        return realisation

    def _record(self, place: str, kind: str, operator: str = "") -> Record | None:
        """A record that holds, or None; one that does not is set aside. operator: who must have signed it."""
        try:
            with open(place, "rb") as file:
                data = file.read()
                facts = os.fstat(file.fileno())
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                self._set_aside(place)
            return None
        try:
            record = open_record(data, kind)
        except ValueError:
            self._set_aside(place)
            return None
        if operator and record.keyid != operator:
            self._set_aside(place)
            return None
        if is_sealed(facts) and record.keyid == self._key().keyid:
            return record
        public = self.public_key(record.keyid)
        if public is None:
            return None  # signed by somebody of whom this store knows no key: kept, not believed
        if not record.verify(public):
            self._set_aside(place)
            return None
        return record

    def _set_aside(self, place: str) -> None:
        parts = place.split("/")
        target = f"{self.layout.text}/quarantine/{'-'.join(parts[-2:])}-{os.urandom(4).hex()}"
        with contextlib.suppress(OSError):  # gone, or a read-only store: a miss all the same
            make_parent(target)
            os.rename(place, target)


def run_name(started: str) -> str:
    """A fresh name for a run and its evidence folder, sorting by time. started: ISO time, UTC."""
    return f"{started.replace(':', '').replace('/', '')}-{os.urandom(4).hex()}"


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
