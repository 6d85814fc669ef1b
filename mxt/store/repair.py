"""Makes a store whole again as far as its own bytes allow; what cannot be made whole is a miss afterwards.

Nothing is deleted: what is damaged goes to quarantine/, which gc empties. Every step is one rename or link
of a finished file, so SIGKILL at any moment leaves a store that a second repair finishes.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from datetime import datetime

from mxt.errors import StoreError
from mxt.store.check import INDEX, LAST, LOST, Checked
from mxt.store.check_blobs import Damage
from mxt.store.digest import hash_file
from mxt.store.layout import is_sealed, make_parent
from mxt.store.lock import OnWait
from mxt.store.mark import listing
from mxt.store.materialise import remove_tree
from mxt.store.os_errors import explain_os_error
from mxt.store.store import Store


@dataclass
class Repaired:
    """What was done. aside: places that went to quarantine. relinked: blobs found whole in out/, or outputs
    linked anew. rebuilt: indexes. left: places that resist, with why.
    """

    aside: list[str] = field(default_factory=list)
    relinked: list[str] = field(default_factory=list)
    rebuilt: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


def repair(store: Store, checked: Checked, *, on_wait: OnWait | None = None) -> Repaired:
    """Act on what a check found. Running builds go on, except for a moment; no gc runs meanwhile.

    Raises StoreError where the store cannot be written.
    """
    lock = store.locks.exclusive(on_wait)
    assert lock is not None  # without a limit of time it is waited for
    with lock, explain_os_error("repair the store", store.layout.root):
        return _Repair(store, checked).run()


class _Repair:
    def __init__(self, store: Store, checked: Checked) -> None:
        self.store = store
        self.layout = store.layout
        self.checked = checked
        self.done = Repaired()

    def run(self) -> Repaired:
        by_kind: dict[str, list[Damage]] = {}
        for damage in self.checked.damages:
            by_kind.setdefault(damage.kind, []).append(damage)
        if self.checked.damages:
            # they say that nothing changed since a build: its next one shall look
            remove_tree(self.layout.state / "snapshots")
        for kind in ("blob", "stranger", "record", "evidence", "progress"):
            for damage in by_kind.get(kind, ()):
                self._set_aside(damage)
        for damage in (*by_kind.get("blob", ()), *by_kind.get("lost", ())):
            self._find_in_outputs(damage.digest)
        self._outputs(by_kind.get("output", []))
        for damage in by_kind.get("index", ()):
            self._rebuild(damage)
        self._note_lost()
        return self.done

    def _set_aside(self, damage: Damage) -> None:
        """Move what was judged to quarantine, unless something else has taken its place."""
        path = self.layout.root / damage.place
        target = f"{self.layout.text}/quarantine/{os.path.basename(damage.place)[:100]}-{os.urandom(4).hex()}"
        try:
            facts = os.lstat(path)
        except OSError:
            return
        # an output's change time is younger when it is a link to a blob that was just moved
        same = (facts.st_ino, facts.st_ctime_ns) == damage.judged
        if not same and (damage.kind != "output" or facts.st_ino != damage.judged[0]):
            return
        make_parent(target)
        try:
            os.rename(path, target)
        except FileNotFoundError:
            return
        except OSError as error:
            self.done.left.append(f"{damage.place}: {(error.strerror or '').lower()}")
            return
        self.done.aside.append(damage.place)

    def _find_in_outputs(self, digest: str) -> None:
        """Put back a blob of which out/ has a whole file."""
        source = self.checked.copies.get(digest)
        if not digest or source is None or digest in self.checked.blobs.sound:
            return
        try:
            facts = os.lstat(source)
            if hash_file(source).digest != digest:
                return
            executable = bool(facts.st_mode & 0o100)
            place = self.layout.blob(digest, executable)
            if is_sealed(facts):
                make_parent(place)
                try:
                    os.link(source, place)
                except OSError:
                    self.store.cas.copy_in(source, digest, executable=executable)
            else:
                self.store.cas.copy_in(source, digest, executable=executable)
        except (OSError, StoreError) as error:
            self.done.left.append(f"{os.path.relpath(source, self.layout.root)}: {error}")
            return
        self.checked.blobs.sound[digest] = facts.st_size
        self.done.relinked.append(os.path.relpath(place, self.layout.root))

    def _outputs(self, damages: list[Damage]) -> None:
        """Mend materialised folders whose bytes are whole; of others take away what is damaged."""
        by_key: dict[str, list[Damage]] = {}
        for damage in damages:
            by_key.setdefault(damage.keys[0], []).append(damage)
        self.checked.blobs.forget_trees()
        for key, faults in by_key.items():
            realisation = self.checked.records.realisations[key][0]
            if self.checked.whole(key):
                for damage in faults:
                    self._set_aside(damage)
                try:
                    self.store.outputs.materialise(realisation)
                    self.done.relinked += [d.place for d in faults if "belong" not in d.what]
                    continue
                except StoreError as error:
                    self.done.left.append(f"out/{key}: {error.message}")
            else:
                for damage in faults:
                    self._set_aside(damage)

    def _note_lost(self) -> None:
        """Leave a note of each result that stays broken, so that the next check has nothing new to say."""
        folder = self.layout.state / LOST
        broken = {key for key in self.checked.records.realisations if not self.checked.whole(key)}
        for key in broken:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / key).touch()
        for path in listing(folder):
            if path.name not in broken:
                path.unlink(missing_ok=True)

    def _rebuild(self, damage: Damage) -> None:
        path = self.layout.root / damage.place
        if damage.place == LAST:
            self.store.history.restore(self._history())
        elif damage.place == INDEX:
            for suffix in ("", "-wal", "-shm"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(f"{path}{suffix}")
        else:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        self.done.rebuilt.append(damage.place)

    def _history(self) -> list[tuple[str, str, str, float]]:
        """The history as far as runs tell it: a key that came back without a run is not among them."""
        rows = []
        for key, runs in self.checked.records.runs.items():
            for run in runs:
                try:
                    when = datetime.fromisoformat(run.started).timestamp()
                except ValueError:
                    continue
                rows.append((run.label, run.action, key, when))
        return sorted(rows, key=lambda row: row[3])
