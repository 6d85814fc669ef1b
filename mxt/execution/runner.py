"""What the scheduler asks of the world: find a result, run an action, take its outputs, explain failures."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from mxt.action.action import Action, ActionId, OutputRef, SliceRef, SourceRef
from mxt.action.explain import Change, compare
from mxt.action.key import InputDigest, Key, action_form, action_key
from mxt.errors import ActionError, MxtError, PlatformError, RefusedError, StageError, StoreError
from mxt.execution.attempts import Attempts
from mxt.execution.environment import Environments
from mxt.execution.harvest import check_outputs, make_readable, take
from mxt.execution.machine import gpu_count, machine_facts
from mxt.execution.prepare import Layout, prepare
from mxt.execution.private import PrivateSearch
from mxt.execution.process import Process, tail
from mxt.execution.sandbox import bubblewrap
from mxt.execution.sources import Sources
from mxt.execution.sweeper import Sweeper
from mxt.execution.warden import Warden, end_strays
from mxt.graph.graph import ActionGraph
from mxt.store.action_cache import Outcome, run_name
from mxt.store.digest import hash_file
from mxt.store.history import Remembered
from mxt.store.lease import Lease
from mxt.store.lock import Lock
from mxt.store.materialise import remove_tree
from mxt.store.realisation import Realisation, RunRecord
from mxt.store.store import Store


class Found(NamedTuple):
    """An action with known inputs: its key, and the result if there is one."""

    key: Key
    inputs: Mapping[str, InputDigest]
    realisation: Realisation | None


@dataclass
class Started:
    """A running action and what must be cleaned up after it."""

    found: Found
    layout: Layout
    process: Process
    lock: Lock
    evidence: Path
    log: Path
    started: str
    run: str
    resumed: bool
    toolchain: str


class Runner:
    """Finds and makes results in one store for one graph. sandbox: False runs on copies, unisolated."""

    def __init__(
        self,
        root: Path,
        store: Store,
        graph: ActionGraph,
        sources: Sources,
        environments: Environments,
        *,
        sandbox: bool = True,
        lease: Lease | None = None,
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._root = root
        self._store = store
        self._graph = graph
        self._sources = sources
        self._environments = environments
        self._sandbox = sandbox
        self._lease = lease
        self._warn = warn
        self._warden: Warden | None = None
        self._unsandboxed = False
        self._sweeper: Sweeper | None = None
        self._attempts: Attempts | None = None
        self._results: dict[ActionId, Found] = {}

    # ---- finding --------------------------------------------------------------------------------

    def find(self, action: Action) -> Found:
        """The action's key and, if the store has a whole one, its result."""
        inputs = {i.name: self._input_digest(i.ref) for i in action.inputs}
        return self._look_up(action_key(action, inputs), inputs)

    def recall(self, keys: Mapping[ActionId, str]) -> bool:
        """Take results of actions outside the graph, by their keys; False where one is not whole."""
        if self._lease is not None:
            self._lease.hold(keys.values())
        for identity, key in keys.items():
            realisation = self._store.actions.lookup(key)
            if realisation is None or not self._store.actions.outputs_present(realisation):
                return False
            self._results[identity] = Found(Key(key, b""), {}, realisation)
        return True

    def look_again(self, found: Found) -> Found:
        """After the lock was taken: somebody else may have made it meanwhile."""
        return self._look_up(found.key, found.inputs)

    def _look_up(self, key: Key, inputs: Mapping[str, InputDigest]) -> Found:
        if self._lease is not None:
            self._lease.hold([key.digest])
        realisation = self._store.actions.lookup(key.digest)
        if realisation is not None and not self._store.actions.outputs_present(realisation):
            realisation = None
        return Found(key, inputs, realisation)

    def _input_digest(self, ref: Any) -> InputDigest:
        if isinstance(ref, SourceRef):
            return self._sources.digest(ref.path)
        if isinstance(ref, SliceRef):
            return InputDigest("file", ref.digest)
        realisation = self._results[ref.action].realisation
        assert realisation is not None
        output = realisation.outputs[ref.output]
        return InputDigest(output.kind, output.digest, output.executable)

    def made(self, action: Action, found: Found, *, remember: bool = True) -> None:
        """Note a result for the actions that read it, and (remember) as this action's newest key.

        A form that a repair set aside is put back: no result needs it, and explanations do.
        """
        self._results[action.id] = found
        if remember:
            if not self._store.cas.has(found.key.digest):
                with contextlib.suppress(StoreError):  # a store that can only be read
                    self._store.cas.put(found.key.digest, found.key.form)
            self._store.history.remember(action.id.label, action.id.name, found.key.digest)

    def result(self, identity: ActionId) -> Found | None:
        return self._results.get(identity)

    def reason(self, action: Action, found: Found) -> list[Change]:
        """Why this action must run: its form against the one it had before."""
        previous = self._store.history.previous(action.id.label, action.id.name)
        if previous is None:
            return [Change("", "", "never built here")]
        if previous == found.key.digest:
            if self._store.actions.lookup(previous) is None:
                return [Change("", "", "its result is no longer kept: a gc or a repair took it away")]
            return [Change("", "", "its outputs are missing or damaged")]
        before = self.form(previous)
        if before is None:
            return [Change("", "", "its last form is no longer kept")]
        return compare(json.loads(before), json.loads(found.key.form)) or [
            Change("", "", "its result is not kept")
        ]

    def partial_reason(self, action: Action, waits: Mapping[str, ActionId]) -> list[Change]:
        """As `reason`, for an action some of whose inputs are still to be made: those are left out."""
        previous = self._store.history.previous(action.id.label, action.id.name)
        before = None if previous is None else self.form(previous)
        if before is None:
            return []
        old = json.loads(before)
        inputs = {
            i.name: InputDigest(
                *(old["inputs"].get(i.name, {}).get(k, "") for k in ("kind", "digest", "executable"))
            )
            if i.name in waits
            else self._input_digest(i.ref)
            for i in action.inputs
        }
        return [
            c
            for c in compare(old, action_form(action, inputs))
            if c.field.removeprefix("inputs.") not in waits
        ]

    def likeness(self, action: Action, makers: Mapping[ActionId, str | None]) -> str:
        """What stands for the key of an action some of whose inputs are still to be made, by `makers`."""
        inputs = {}
        for i in action.inputs:
            maker = makers.get(i.ref.action) if isinstance(i.ref, OutputRef) else None
            if maker is not None and isinstance(i.ref, OutputRef):
                inputs[i.name] = InputDigest("made", f"{maker} {i.ref.output}")
            else:
                inputs[i.name] = self._input_digest(i.ref)
        return action_key(action, inputs).digest

    def history(self, identity: ActionId) -> list[Remembered]:
        """The keys this action has had here, oldest first."""
        return self._store.history.history(identity.label, identity.name)

    def form(self, key: str) -> bytes | None:
        """The canonical form behind a key, if it is kept."""
        try:
            return self._store.cas.read(key)
        except MxtError:
            return None

    # ---- running --------------------------------------------------------------------------------

    def try_lock(self, found: Found) -> Lock | None:
        """The key's lock, or None while another build holds it."""
        return self._store.locks.acquire(found.key.digest, timeout_s=0)

    def start(self, action: Action, found: Found, lock: Lock) -> Started:
        """Lay out and start an action. Releases the lock if that fails."""
        root = Path(self._store.layout.temporary())
        try:
            return self._start(action, found, lock, root)
        except BaseException:
            _remove(root)
            lock.release()
            raise

    def _start(self, action: Action, found: Found, lock: Lock, root: Path) -> Started:
        if action.gpus > gpu_count():
            raise PlatformError(
                f"needs {action.gpus} GPU{'s' if action.gpus > 1 else ''}, this machine has {gpu_count()}",
                where=str(action.id),
                hint="build on a machine that has them, or fetch a result made on one",
            )
        if action.refusal is not None:
            raise RefusedError(action.refusal.message, where=str(action.id), hint=action.refusal.hint)
        platform = self._environments.platform(action)
        container = self._environments.container(action)
        code = self._environments.code(action)
        sandboxed = container is not None or (self._sandbox and bubblewrap() is not None)
        self._mention_sandbox(sandboxed)
        self._unsandboxed |= not sandboxed
        changed = self._changed_source(action)
        if changed:  # a pipe in its place would hold the action for ever, anything else cost its time
            raise ActionError(
                f"its input '{changed}' changed during the build, so it was not run", hint="build again"
            )
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        layout_paths = self._store.layout
        key = found.key.digest
        run = run_name(now)
        evidence = layout_paths.evidence(key, run)
        progress = layout_paths.progress(key) if action.progress else None
        own_accelerants = action.accelerants and action.accelerants_from is None
        accelerants = layout_paths.accelerants(key) if own_accelerants else None
        resumed = progress is not None and _has_progress(progress)
        _make_evidence(evidence)
        for folder in (progress, accelerants):
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True)
        self._store.cas.put(key, found.key.form)
        root.mkdir(parents=True)
        if action.accelerants_from is not None:
            accelerants = self._borrow(action.accelerants_from, root / "accelerants")
        lay_out = partial(prepare, sandboxed=sandboxed)
        if container is not None:
            from mxt.execution.container import prepare_container
            from mxt.execution.owner import store_mark

            mark = store_mark(layout_paths.root / "toolchains")
            lay_out = partial(prepare_container, container=container, store=mark)
        layout = lay_out(
            action,
            workspace=self._root,
            root=root,
            places={i.name: self._place(i.ref) for i in action.inputs},
            evidence=evidence,
            progress=progress,
            accelerants=accelerants,
            code=code,
            platform=platform,
        )
        if self._warden is None:
            # in this order: what is forked second holds the first's pipe, and the warden waits for its end
            self._sweeper = self._sweeper or Sweeper()
            self._warden = Warden()
        if self._attempts is None:
            self._attempts = Attempts(layout_paths.state / "attempts.log")
        log = evidence / "log.txt"
        self._attempts.note(action.id, evidence)
        process = Process(layout, log, lock.fd, self._warden.next_mark())
        toolchain = action.toolchain or "host"
        return Started(found, layout, process, lock, evidence, log, now, run, resumed, toolchain)

    def _borrow(self, maker: ActionId, folder: Path) -> Path:
        """A private copy of another action's accelerants; empty where they are gone: that costs time only."""
        source = self._store.layout.accelerants(self._results[maker].key.digest)
        if source.is_dir():
            shutil.copytree(source, folder, symlinks=True)
        else:
            folder.mkdir(parents=True)
        return folder

    _mentioned = False

    def _mention_sandbox(self, sandboxed: bool) -> None:
        if sandboxed or self._mentioned:
            return
        self._mentioned = True
        if not self._sandbox:
            why = "--no-sandbox"
        elif os.environ.get("MXT_SANDBOX") == "none":
            why = "MXT_SANDBOX=none"
        else:
            why = "bwrap is missing or not permitted"
        self._warn(f"no sandbox ({why}): actions run on copies")

    def _changed_source(self, action: Action) -> str:
        """The first of an action's sources that is not what its key says; "" if all are."""
        return self._sources.changed(
            i.ref.path for i in action.inputs if isinstance(i.ref, (SourceRef, SliceRef))
        )

    def _place(self, ref: Any) -> Path:
        """Where an input lies on this machine; made inputs are materialised first."""
        if isinstance(ref, (SourceRef, SliceRef)):
            return self._root / ref.path
        assert isinstance(ref, OutputRef)
        found = self._results[ref.action]
        assert found.realisation is not None
        return self._store.outputs.materialise(found.realisation) / found.realisation.outputs[ref.output].path

    def release(self, started: Started) -> None:
        """After an action: its temporary files and its lock."""
        assert self._sweeper is not None
        self._sweeper.remove(started.layout.root)
        started.lock.release()

    def close(self) -> None:
        if self._warden is not None and self._unsandboxed:
            end_strays()
        if self._warden is not None:
            self._warden.close()
            self._warden = None
        if self._sweeper is not None:
            self._sweeper.close()
            self._sweeper = None
        if self._attempts is not None:
            self._attempts.close()
            self._attempts = None

    # ---- taking outputs -----------------------------------------------------------------------------

    def harvest(self, action: Action, started: Started, wall_s: float) -> Realisation:
        """Check what the action made, take it into the store, record it. Runs in a pool's thread.

        Raises ActionError where outputs are missing, undeclared or hold this machine's paths, or where
        a source changed while the action ran; nothing is recorded then.
        """
        check_outputs(action, started.layout)
        if action.params.get("executable") is True:
            for output in action.outputs:
                (started.layout.outputs / output.path).chmod(0o755)
        search = PrivateSearch(action, started.layout)
        try:
            outputs = take(self._store, action, started.layout)
        finally:
            search.finish()
        changed = self._changed_source(action)
        if changed:
            raise ActionError(
                f"its input '{changed}' changed while it ran, so nothing was recorded", hint="build again"
            )
        key = started.found.key.digest
        realisation = Realisation(key, outputs)
        recorded = self._store.actions.record(
            realisation,
            RunRecord(
                key=key,
                realisation=realisation.digest,
                label=action.id.label,
                action=action.id.name,
                mnemonic=action.mnemonic,
                evidence=_evidence(started.evidence),
                machine=machine_facts(),
                sandbox=f"{started.layout.sandbox} {started.layout.options}".rstrip(),
                toolchain=started.toolchain,
                started=started.started,
                wall_s=f"{wall_s:.3f}",
                resumed=started.resumed,
                name=started.run,
            ),
        )
        if recorded.outcome is Outcome.DIVERGED:
            self._warn(
                f"{action.id} made other bytes than last time under the same key; the first result stays"
            )
        elif recorded.outcome is Outcome.REPLACED:
            self._warn(
                f"{action.id} made other bytes than its lost result; the new one is used, the old one noted"
            )
        if recorded.outcome in (Outcome.FIRST, Outcome.SAME):
            self._store.outputs.take_folder(started.layout.outputs, recorded.current)
        else:
            self._store.outputs.materialise(recorded.current)
        if action.progress:
            shutil.rmtree(self._store.layout.progress(key), ignore_errors=True)
        return recorded.current

    # ---- failing --------------------------------------------------------------------------------------

    def failure(self, action: Action, started: Started, status: int) -> MxtError:
        """Why a process ended badly, with the end of its log and where the rest is."""
        error = started.process.error
        import shlex

        shown = f"mxt log {shlex.quote(action.id.label)}"
        if action.id.name:
            shown += f" --action {shlex.quote(action.id.name)}"
        if error is not None:
            return self.located(
                action,
                started,
                StageError(
                    error["message"],
                    where=error["where"],
                    hint=error["hint"],
                    excerpt=error.get("excerpt", ""),
                ),
            )
        if started.process.crash:
            what = started.process.crash
        elif status < 0 or status > 128:
            number = -status if status < 0 else status - 128
            try:
                name = signal.Signals(number).name
            except ValueError:
                name = f"signal {number}"
            what = f"killed by {name}"
            if name == "SIGKILL":
                what += " (out of memory?)"
        else:
            what = f"exit status {status}"
        lines = tail(started.log)
        excerpt = "\n".join(f"  | {line}" for line in lines)
        kept = (
            " Its checkpoints are kept; the next build resumes."
            if action.progress and _has_progress(self._store.layout.progress(started.found.key.digest))
            else ""
        )
        full = "the disk is full: free some space, `mxt gc` removes what no target uses\n        "
        return ActionError(
            f"{action.mnemonic} failed: {what}",
            where=str(action.id),
            excerpt=excerpt,
            hint=f"{full if _is_full(started.log) else ''}the whole log: {shown}{'.' + kept if kept else ''}",
        )

    def located(self, action: Action, started: Started, error: MxtError) -> MxtError:
        """The error with the action's name, and the workspace's paths instead of the sandbox's."""
        for field in ("message", "where", "hint", "excerpt"):
            setattr(error, field, _translate(getattr(error, field), started.layout))
        error.args = (error.message,)
        if not error.where:
            error.where = str(action.id)
        elif str(action.id) not in error.where:
            error.hint = f"{error.hint}\n  in: {action.id}" if error.hint else f"in {action.id}"
        return error

    def explain_os(self, error: OSError) -> StoreError:
        return StoreError(
            f"{error.strerror or error}",
            where=str(error.filename or ""),
            hint="check free space and permissions",
        )


def _make_evidence(folder: Path) -> None:
    """A folder of a fresh name, in its key's, which is mostly new as well."""
    path = os.fspath(folder)
    try:
        os.mkdir(os.path.dirname(path))
    except FileExistsError:
        pass
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)
    os.mkdir(path)


def _translate(text: str, layout: Layout) -> str:
    for place, origin in sorted(layout.origins.items(), key=lambda p: -len(p[0])):
        for prefix in (layout.base + "/", ""):
            text = text.replace(prefix + place, origin)
    return text.replace(layout.base + "/", "")


def _evidence(folder: Path) -> dict[str, str]:
    """Digests of all that a run left, by path; links, special files, names not in UTF-8 are no evidence."""
    found = {}
    make_readable(folder)
    for place, _, names in os.walk(folder):
        for name in names:
            path = Path(place, name)
            if stat.S_ISREG(path.lstat().st_mode) and _is_text(name):
                found[path.relative_to(folder).as_posix()] = str(hash_file(path).digest)
    return found


def _is_full(path: Path) -> bool:
    """Whether the store's disk has no room: an action that dies of it cannot even say so in its log."""
    try:
        disk = os.statvfs(path.parent)
    except OSError:
        return False
    return disk.f_blocks > 0 and disk.f_bavail * disk.f_frsize < 1 << 16


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _has_progress(folder: Path) -> bool:
    """Whether there is anything to resume from; what a killed writer left half done begins with a dot."""
    try:
        return any(not name.startswith(".") for name in os.listdir(folder))
    except OSError:
        return False


def _remove(folder: Path) -> None:
    """Delete a folder whatever an action left in it; what resists stays for gc."""
    with contextlib.suppress(OSError):
        remove_tree(folder)
