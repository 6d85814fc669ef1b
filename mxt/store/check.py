"""Looks over a whole store and names every damage; changes nothing, also where it is not allowed to.

Full: every byte is hashed. Quick: sizes, seals, links and signed records only; what lost its seal is hashed.
Records are read before blobs are listed, as a running build stores blobs first and records last.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from mxt.errors import StoreError
from mxt.store.check_blobs import MISSING, Blobs, Damage, OnProgress, silent
from mxt.store.check_outputs import Outputs
from mxt.store.check_records import PublicKey, Records, read_records
from mxt.store.digest import hash_file
from mxt.store.history import History
from mxt.store.layout import Layout
from mxt.store.lock import Lock, Locks, OnWait
from mxt.store.mark import listing
from mxt.store.progress import damaged_checkpoints

INDEX = "index.sqlite"
LAST = "state/last.sqlite"
DURATIONS = "state/durations.sqlite"
LOST = "lost"  # in state/: an empty file for each key whose bytes a repair could not bring back


@dataclass
class Checked:
    """What a check found. labels: key -> the targets that had it. last: the newest key of each action.

    copies: digest -> a whole file in out/ that is no link to its blob. missing_evidence: files that a run
    left and somebody deleted. lost: keys whose bytes are gone as a repair has said already: a miss, and no
    damage any more. bytes: read and hashed.
    """

    blobs: Blobs
    records: Records
    quick: bool
    damages: list[Damage] = field(default_factory=list)
    labels: dict[str, set[str]] = field(default_factory=dict)
    last: set[str] = field(default_factory=set)
    copies: dict[str, str] = field(default_factory=dict)
    missing_evidence: int = 0
    lost: set[str] = field(default_factory=set)
    bytes: int = 0

    def targets(self, damage: Damage) -> list[str]:
        """The targets whose results need what is damaged, sorted."""
        return sorted({label for key in damage.keys for label in self.labels.get(key, ())})

    def whole(self, key: str) -> bool:
        """Whether the store holds every byte of some realisation of a key."""
        return any(
            all(whole for output in one.outputs.values() for _, _, whole in self._below(output))
            for one in self.records.realisations.get(key, ())
        )

    def _below(self, output: object) -> Iterator[tuple[str, int, bool]]:
        return self.blobs.below(output.kind, output.digest, output.size)  # type: ignore[attr-defined]

    def runs_again(self) -> list[str]:
        """Targets whose newest result is not whole: the next build of them runs again."""
        known = self.records.realisations.keys() | self.records.runs.keys()  # a gc forgets both
        known |= {damage.keys[0] for damage in self.damages if damage.kind == "record" and damage.keys}
        broken = {key for key in self.last & known if not self.whole(key)}
        return sorted({label for key in broken for label in self.labels.get(key, ())})


def check(
    layout: Layout,
    public_key: PublicKey,
    own: str,
    history: History,
    *,
    quick: bool = False,
    progress: OnProgress = silent,
    on_wait: OnWait | None = None,
) -> Checked:
    """Look at everything. own: this operator's fingerprint.

    Builds go on meanwhile, a gc waits. Raises nothing for damage, of whatever kind.
    """
    lock = _share(layout, on_wait)
    try:
        records = read_records(layout, public_key, own, quick=quick)
        blobs = Blobs(layout, quick=quick, progress=progress)
        found = Checked(blobs, records, quick, list(records.damages))
        faults = list(_indexes(layout, bool(records.runs)))
        readable = not any(damage.place == LAST for damage in faults)
        _name(found, history.newest() if readable else {})
        _needed(found)
        outputs = Outputs(blobs, quick=quick)
        for key in sorted(records.realisations):
            found.damages += outputs.look(records.realisations[key][0])
        found.copies = outputs.copies
        found.bytes = blobs.hashed + outputs.hashed
        _evidence(layout, found)
        _progress(layout, found)
        found.damages += faults
        _leave_out_what_is_known(layout, found)
        return found
    finally:
        if lock is not None:
            lock.release()


def _share(layout: Layout, on_wait: OnWait | None) -> Lock | None:
    """The store's lock as builds take it; None where nothing can be written: then no gc runs."""
    try:
        return Locks(layout).shared(on_wait)
    except StoreError:
        return None


def _name(found: Checked, last_keys: dict[tuple[str, str], str]) -> None:
    """Which targets had which keys, by the history and by the runs."""
    for (label, _), key in last_keys.items():
        found.labels.setdefault(key, set()).add(label)
        found.last.add(key)
    newest: dict[tuple[str, str], tuple[str, str]] = {}
    for key, runs in found.records.runs.items():
        for run in runs:
            found.labels.setdefault(key, set()).add(run.label)
            place = (run.label, run.action)
            newest[place] = max(newest.get(place, ("", "")), (run.started, key))
    found.last |= {key for place, (_, key) in newest.items() if place not in last_keys}


def _needed(found: Checked) -> None:
    """Add to each damaged blob the keys that need it, and the blobs that are not there at all."""
    users: dict[str, set[str]] = {}
    for key, realisations in found.records.realisations.items():
        users.setdefault(key, set()).add(key)  # its form
        for one in realisations:
            for output in one.outputs.values():
                for digest, _, whole in found.blobs.below(output.kind, output.digest, output.size):
                    if not whole or digest not in found.blobs.sound:
                        users.setdefault(digest, set()).add(key)
    damaged = set()
    for damage in found.blobs.damages.values():
        damaged.add(damage.digest)
        # the other form of the same bytes may be whole, then nobody needs this one
        keys = () if damage.digest in found.blobs.sound else tuple(sorted(users.get(damage.digest, ())))
        found.damages.append(replace(damage, keys=keys))
    for digest in sorted(users.keys() - damaged - found.records.realisations.keys()):
        sound = digest in found.blobs.sound
        what = "is of another size than a record says, or no folder" if sound else MISSING
        keys = tuple(sorted(users[digest]))
        found.damages.append(Damage("lost", f"cas/{digest[:2]}/{digest}", what, digest, keys))


def _leave_out_what_is_known(layout: Layout, found: Checked) -> None:
    """What a repair could not bring back is no news, until a build makes it again."""
    known = {path.name for path in listing(layout.state / LOST)} & found.records.realisations.keys()
    found.lost = {key for key in known if not found.whole(key)}
    found.damages = [
        damage
        for damage in found.damages
        if not (damage.what == MISSING and damage.keys and found.lost.issuperset(damage.keys))
    ]


def _evidence(layout: Layout, found: Checked) -> None:
    """Evidence that differs from what its run says; deleted evidence is only counted: nothing needs it."""
    for key, runs in found.records.runs.items():
        for run in runs:
            folder = layout.evidence(key, run.name)
            for name, digest in run.evidence.items():
                path = folder / name
                try:
                    facts = os.lstat(path)
                    if found.quick:
                        continue
                    made = hash_file(path)
                except FileNotFoundError:
                    found.missing_evidence += 1
                    continue
                except (OSError, StoreError, ValueError) as error:
                    why = error.strerror if isinstance(error, OSError) else str(error)
                    what = f"cannot be read: {(why or '').lower()}"
                else:
                    found.bytes += made.size
                    if made.digest == digest:
                        continue
                    what = "is not as the run left it"
                place = os.path.relpath(path, layout.root)
                judged = (facts.st_ino, facts.st_ctime_ns)
                found.damages.append(Damage("evidence", place, what, "", (key,), judged))


def _progress(layout: Layout, found: Checked) -> None:
    if found.quick:
        return
    for folder in listing(layout.root / "progress"):
        for path in damaged_checkpoints(folder):
            try:
                facts = os.lstat(path)
            except OSError:  # its action ended meanwhile
                continue
            place, judged = os.path.relpath(path, layout.root), (facts.st_ino, facts.st_ctime_ns)
            what = "is a checkpoint that does not verify"
            found.damages.append(Damage("progress", place, what, "", (folder.name,), judged))


def _indexes(layout: Layout, has_runs: bool) -> Iterator[Damage]:
    """Files that only save time or explain, and can be made anew."""
    for name in (INDEX, LAST, DURATIONS):
        path = layout.root / name
        if os.path.lexists(path):
            what = database_fault(path)
        else:
            what = "is missing" if name == LAST and has_runs else ""
        if what:
            yield Damage("index", name, what)
    for path in listing(layout.state / "builds"):
        if path.suffix != ".json":
            continue
        try:
            json.loads(path.read_bytes())
        except FileNotFoundError:
            continue
        except (OSError, ValueError, RecursionError):
            yield Damage("index", os.path.relpath(path, layout.root), "is no JSON")


def database_fault(path: Path) -> str:
    """What is wrong with an SQLite file; "" if nothing is, or if that cannot be said as it is in use."""
    import sqlite3

    # without a side effect: not even the files that SQLite keeps beside one that it may write to
    for mode in ("mode=ro", "mode=ro&immutable=1"):
        try:
            with_uri = f"file:{_quoted(path)}?{mode}"
            connection = sqlite3.connect(with_uri, uri=True, timeout=5)
            try:
                answer = connection.execute("PRAGMA quick_check(1)").fetchone()
            finally:
                connection.close()
            return "" if answer == ("ok",) else "is a damaged database"
        except sqlite3.OperationalError as error:
            if "locked" in str(error) or "busy" in str(error):
                return ""
            continue  # a store that cannot be written to
        except sqlite3.DatabaseError:
            return "is no database"
    return "cannot be opened"


def _quoted(path: Path) -> str:
    from urllib.parse import quote

    return quote(os.fspath(path))
