"""The scheduler: moves every action of a graph from WAITING to an end, one event loop, no locks.

Children run in parallel; keys, look-ups and decisions happen here, one after the other. Taking
outputs into the store (hashing) happens in a small pool, because it may take seconds.
"""

from __future__ import annotations

import heapq
import os
import selectors
import signal
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar

from mxt.action.action import Action, ActionId
from mxt.action.explain import Change
from mxt.errors import MxtError
from mxt.execution.durations import Durations
from mxt.execution.events import Events
from mxt.execution.process import Process
from mxt.execution.runner import Found, Runner, Started
from mxt.graph.graph import ActionGraph


class State(Enum):
    """What can be said of an action while a build runs."""

    WAITING = "some input is still to be made"
    READY = "every input is known; its key has not been looked up"
    BLOCKED = "another build holds its key; asked again every 50 ms"
    QUEUED = "must run, and waits for cores, memory or devices"
    RUNNING = "its process lives"
    HARVESTING = "its process ended well and its outputs go into the store"
    DONE = "a result is known: found or made"
    FAILED = "it failed"
    SKIPPED = "something it needs failed"
    INTERRUPTED = "the user stopped the build while it ran or before it could"


ENDED = {State.DONE, State.FAILED, State.SKIPPED, State.INTERRUPTED}
GRACE_SECONDS = 3.0
_RESERVED = {"event", "v", "time", "build", "label", "action", "key"}


@dataclass
class Limits:
    """jobs: actions at once. cpus, memory_mb (MiB), gpus: what may be occupied in all."""

    jobs: int
    cpus: int
    memory_mb: int
    gpus: int


@dataclass
class Step:
    """One action on its way."""

    action: Action
    missing: int
    priority: float = 0.0
    state: State = State.WAITING
    found: Found | None = None
    started: Started | None = None
    process: Process | None = None
    began: float = 0.0
    wall_s: float = 0.0
    status: str = ""
    reason: list[Change] = field(default_factory=list)
    error: MxtError | None = None
    said_waiting: bool = False
    passed: int = 0


@dataclass
class Outcome:
    """How a build went. counts: by status. steps: by action."""

    steps: dict[ActionId, Step]
    counts: dict[str, int]
    errors: list[MxtError]
    interrupted: bool


class Scheduler:
    """Runs a graph. keep_going: after a failure go on with what does not depend on it."""

    def __init__(
        self,
        graph: ActionGraph,
        runner: Runner,
        events: Events,
        limits: Limits,
        durations: Durations,
        *,
        keep_going: bool = False,
        tick: Callable[[], None] | None = None,
    ) -> None:
        self._graph = graph
        self._runner = runner
        self._events = events
        self._limits = limits
        self._durations = durations
        self._keep_going = keep_going
        self._tick = tick
        self._consumers = graph.consumers()
        self._steps = {
            i: Step(a, sum(d in graph.actions for d in a.dependencies)) for i, a in graph.actions.items()
        }
        self._ready: list[ActionId] = [i for i, s in self._steps.items() if s.missing == 0]
        self._queue: list[tuple[float, int, ActionId]] = []
        self._order = {identity: n for n, identity in enumerate(self._steps)}
        self._blocked: list[ActionId] = []
        self._running: dict[ActionId, Step] = {}
        self._harvesting: dict[ActionId, Step] = {}
        self._left = len(self._steps)
        self._errors: list[MxtError] = []
        self._stopping = False
        self._interrupts = 0
        self._signals = 0
        self._killed_at = 0.0
        self._selector = selectors.DefaultSelector()
        self._wake_r, self._wake_w = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._harvested: list[tuple[ActionId, Future[Any]]] = []
        self._pool: ThreadPoolExecutor | None = None
        self._prioritise()

    # ---- the loop -----------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Run until every action has ended. Never raises for a failing action."""
        self._selector.register(self._wake_r, selectors.EVENT_READ, ("wake", None))
        previous = {
            s: signal.signal(s, self._on_signal) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        }
        old_wakeup = signal.set_wakeup_fd(self._wake_w, warn_on_full_buffer=False)
        try:
            while self._left:
                self._heed_signals()
                self._look_up_ready()
                self._retry_blocked()
                self._start_queued()
                if self._left:
                    self._wait()
        except BaseException:
            self._abandon()
            raise
        finally:
            signal.set_wakeup_fd(old_wakeup)
            for sign, handler in previous.items():
                signal.signal(sign, handler)
            if self._pool is not None:
                self._pool.shutdown()
            self._selector.close()
            os.close(self._wake_r)
            os.close(self._wake_w)
        counts: dict[str, int] = {}
        for step in self._steps.values():
            counts[step.status] = counts.get(step.status, 0) + 1
        return Outcome(self._steps, counts, self._errors, self._interrupts > 0)

    def _wait(self) -> None:
        timeout = 0.05 if self._blocked else 0.1 if self._tick or self._interrupts else None
        for key, _ in self._selector.select(timeout):
            what, identity = key.data
            if what == "wake":
                try:
                    while os.read(self._wake_r, 4096):
                        pass
                except BlockingIOError:
                    pass
            elif what == "report":
                # its end may have come in the same moment: the descriptor is closed then, or another file's
                if self._steps[identity].state is State.RUNNING:
                    self._reports(self._steps[identity])
            elif what == "exit":
                self._exited(identity)
        while self._harvested:
            identity, future = self._harvested.pop()
            self._harvest_done(identity, future)
        if self._killed_at and time.monotonic() - self._killed_at > GRACE_SECONDS:
            self._kill_all(signal.SIGKILL)
        if self._tick:
            self._tick()

    # ---- from READY -----------------------------------------------------------------------------

    def _look_up_ready(self) -> None:
        while self._ready and self._interrupts == self._signals:
            identity = self._ready.pop()
            step = self._steps[identity]
            if self._stopping:
                self._end(identity, State.INTERRUPTED if self._interrupts else State.SKIPPED)
                continue
            step.state = State.READY
            try:
                step.found = self._runner.find(step.action)
            except MxtError as error:
                self._fail(identity, error)
                continue
            if step.found.realisation is not None:
                self._end(identity, State.DONE, "cached")
                continue
            step.reason = self._runner.reason(step.action, step.found)
            self._push(identity)

    def _push(self, identity: ActionId) -> None:
        self._steps[identity].state = State.QUEUED
        heapq.heappush(self._queue, (-self._steps[identity].priority, self._order[identity], identity))

    def _retry_blocked(self) -> None:
        blocked, self._blocked = self._blocked, []
        for identity in blocked:
            self._push(identity)

    def _start_queued(self) -> None:
        """Highest priority first; smaller ones may pass one that does not fit, unless it is exclusive."""
        held: list[tuple[float, int, ActionId]] = []
        while self._queue and self._interrupts == self._signals:
            if not self._stopping and self._full(-self._queue[0][0]):
                break  # nothing can fit: 10,000 that wait are not looked at one by one
            entry = heapq.heappop(self._queue)
            identity = entry[2]
            if self._stopping:
                self._end(identity, State.INTERRUPTED if self._interrupts else State.SKIPPED)
                continue
            if not self._fits(self._steps[identity]):
                held.append(entry)
                if self._steps[identity].action.exclusive or self._steps[identity].passed > self._limits.jobs:
                    break  # smaller ones have passed it often enough: it is next
                continue
            for _, _, other in held:
                self._steps[other].passed += 1
            self._start(identity)
        for entry in held:
            heapq.heappush(self._queue, entry)

    def _fits(self, step: Step) -> bool:
        action = step.action
        active = [s.action for s in self._running.values()] + self._kept(step.priority)
        if action.exclusive and self._harvesting:
            return False  # hashing occupies cores as well
        if not active:
            return True  # alone it always may: a declared need above this machine's size is not a dead end
        if action.exclusive or any(a.exclusive for a in active) or len(active) >= self._limits.jobs:
            return False
        return (
            sum(a.cpus for a in active) + action.cpus <= self._limits.cpus
            and sum(a.memory_mb for a in active) + action.memory_mb <= self._limits.memory_mb
            and sum(a.gpus for a in active) + action.gpus <= self._limits.gpus
        )

    def _full(self, priority: float) -> bool:
        """Whether no action of this priority or a lower one can start, however small it is."""
        if len(self._harvesting) > 2 * self._limits.jobs:
            return True
        return len(self._running) + len(self._kept(priority)) >= self._limits.jobs

    def _kept(self, priority: float) -> list[Action]:
        """Actions whose outputs are taken in, and whose place a consumer of higher priority will want."""
        return [
            step.action
            for identity, step in self._harvesting.items()
            if any(self._steps[c].priority > priority for c in self._consumers[identity])
        ]

    def _start(self, identity: ActionId) -> None:
        step = self._steps[identity]
        assert step.found is not None
        try:
            lock = self._runner.try_lock(step.found)
            if lock is None:
                if not step.said_waiting:
                    step.said_waiting = True
                    self._events.emit(
                        "action_waiting",
                        label=identity.label,
                        action=identity.name,
                        key=step.found.key.digest,
                    )
                step.state = State.BLOCKED
                self._blocked.append(identity)
                return
            again = self._runner.look_again(step.found)
            if again.realisation is not None:
                lock.release()
                step.found = again
                self._end(identity, State.DONE, "cached")
                return
            step.started = self._runner.start(step.action, step.found, lock)
        except MxtError as error:
            self._fail(identity, error)
            return
        except OSError as error:
            self._fail(identity, self._runner.explain_os(error))
            return
        step.process = step.started.process
        step.state = State.RUNNING
        step.began = time.monotonic()
        self._running[identity] = step
        self._selector.register(step.process.pidfd, selectors.EVENT_READ, ("exit", identity))
        if not step.process.silent:
            self._selector.register(step.process.reports, selectors.EVENT_READ, ("report", identity))
        self._events.emit(
            "action_started",
            label=identity.label,
            action=identity.name,
            mnemonic=step.action.mnemonic,
            key=step.found.key.digest,
            reason=[c._asdict() for c in step.reason],
            resumed=step.started.resumed,
        )

    # ---- from RUNNING ---------------------------------------------------------------------------

    def _reports(self, step: Step) -> None:
        assert step.process is not None
        assert step.found is not None
        was_silent = step.process.silent
        reports = step.process.read_reports()
        if step.process.silent and not was_silent:
            self._selector.unregister(step.process.reports)
        for report in reports:
            report.pop("time", None)
            self._events.emit(
                "action_progress",
                label=step.action.id.label,
                action=step.action.id.name,
                key=step.found.key.digest,
                **{
                    k: v for k, v in report.items() if isinstance(v, (int, float, str)) and k not in _RESERVED
                },
            )

    def _exited(self, identity: ActionId) -> None:
        step = self._steps[identity]
        assert step.process is not None
        assert step.started is not None
        self._reports(step)
        self._selector.unregister(step.process.pidfd)
        if not step.process.silent:
            self._selector.unregister(step.process.reports)
        status = step.process.finish()
        step.wall_s = time.monotonic() - step.began
        started = step.started
        if status != 0:
            del self._running[identity]
            error = self._runner.failure(step.action, started, status)
            self._runner.release(started)
            if self._interrupts:
                self._end(identity, State.INTERRUPTED)
            else:
                self._fail(identity, error)
            return
        step.state = State.HARVESTING
        # what it occupied is free: the next one starts while its outputs are taken in
        self._harvesting[identity] = self._running.pop(identity)
        if self._pool is None:
            self._pool = ThreadPoolExecutor(
                max_workers=max(2, os.cpu_count() or 2), thread_name_prefix="harvest"
            )
        future = self._pool.submit(self._runner.harvest, step.action, started, step.wall_s)

        def done(finished: Future[Any]) -> None:
            self._harvested.append((identity, finished))
            try:
                os.write(self._wake_w, b"h")
            except (BlockingIOError, OSError):
                pass

        future.add_done_callback(done)

    def _harvest_done(self, identity: ActionId, future: Future[Any]) -> None:
        step = self._steps[identity]
        assert step.started is not None
        assert step.found is not None
        del self._harvesting[identity]
        try:
            step.found = step.found._replace(realisation=future.result())
        except MxtError as error:
            self._fail(identity, self._runner.located(step.action, step.started, error))
        except OSError as error:
            self._fail(identity, self._runner.explain_os(error))
        else:
            self._durations.note(identity, step.wall_s)
            self._end(identity, State.DONE, "executed")
        finally:
            self._runner.release(step.started)

    # ---- ends -----------------------------------------------------------------------------------

    def _fail(self, identity: ActionId, error: MxtError) -> None:
        step = self._steps[identity]
        if not error.where:
            error.where = str(identity)
        step.error = error
        self._errors.append(error)
        self._end(identity, State.FAILED, "failed")
        if not self._keep_going:
            self._stop()

    def _stop(self) -> None:
        """Start nothing more; what runs may finish, what waits is skipped."""
        self._stopping = True
        for identity, step in self._steps.items():
            if step.state in (State.WAITING, State.BLOCKED):
                self._end(identity, State.INTERRUPTED if self._interrupts else State.SKIPPED)
        self._blocked.clear()

    _STATUS: ClassVar = {State.FAILED: "failed", State.SKIPPED: "skipped", State.INTERRUPTED: "interrupted"}

    def _end(self, identity: ActionId, state: State, status: str = "") -> None:
        step = self._steps[identity]
        if step.state in ENDED:
            return
        step.state = state
        step.status = status or self._STATUS[state]
        self._left -= 1
        self._events.emit(
            "action_finished",
            label=identity.label,
            action=identity.name,
            mnemonic=step.action.mnemonic,
            key=step.found.key.digest if step.found else None,
            status=step.status,
            wall_s=int(step.wall_s * 1000) / 1000,
            reason=[c._asdict() for c in step.reason],
            **({"error": str(step.error)} if step.error else {}),
        )
        if state is State.DONE:
            assert step.found is not None
            self._runner.made(step.action, step.found)
            for consumer in self._consumers[identity]:
                waiting = self._steps[consumer]
                waiting.missing -= 1
                if waiting.missing == 0 and waiting.state is State.WAITING:
                    self._ready.append(consumer)
        elif state is State.FAILED:
            stack = list(self._consumers[identity])
            while stack:
                consumer = stack.pop()
                if self._steps[consumer].state not in ENDED:
                    self._end(consumer, State.SKIPPED)
                    stack.extend(self._consumers[consumer])

    # ---- signals and order ------------------------------------------------------------------------

    def _on_signal(self, _number: int, _frame: object) -> None:
        self._signals += 1  # the wake-up descriptor ends the wait; the loop does the rest

    def _heed_signals(self) -> None:
        while self._interrupts < self._signals:
            self._interrupts += 1
            if self._interrupts == 1:
                self._events.emit("build_interrupted")
                self._stop()
                self._killed_at = time.monotonic()
                self._kill_all(signal.SIGTERM)
            else:
                self._kill_all(signal.SIGKILL)

    def _kill_all(self, sign: signal.Signals) -> None:
        for step in self._running.values():
            if step.process is not None and step.state is State.RUNNING:
                step.process.kill(sign)

    def _abandon(self) -> None:
        """A defect, or an error that is no action's: leave nothing running."""
        for step in self._running.values():
            if step.process is not None and step.state is State.RUNNING:
                step.process.kill(signal.SIGKILL)
                step.process.finish()

    def _prioritise(self) -> None:
        """Critical path first: an action's own expected seconds plus the longest chain behind it."""
        for identity in reversed(list(self._steps)):
            step = self._steps[identity]
            behind = max((self._steps[c].priority for c in self._consumers[identity]), default=0.0)
            step.priority = behind + (self._durations.get(identity) or 1.0)
