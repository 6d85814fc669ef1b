"""Measures the candidates in their own process, so that one that hangs or compiles too long can be stopped.

What the child finds arrives line by line; what has arrived when the budget ends counts. First all
candidates without a compiler take turns, then each compiled one takes turns with the best of those.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mxt.rule import StageError
from rules._probe.candidates import Candidate
from rules._probe.choose import Measurement, step_seconds
from rules._runtime import first_line

ROUNDS = 12
LEAST_ROUNDS = 3
LAST_COMPILE = 2  # budgets more that the first compilation may take, as long as it can still pay
LOADING_S = 600  # for the libraries and the model, which no budget counts
PATIENCE = 10  # budgets until the first timing must have arrived
PLAIN_SHARE = 0.5  # part of the budget for the candidates without a compiler, if there are others

Send = Callable[[Mapping[str, Any]], None]


def measure(
    measurements: Sequence[Measurement],
    model_config: Mapping[str, Any],
    recipe: Mapping[str, Any],
    steps: int,
    report: Callable[..., None],
) -> float:
    """Fill in what can be learnt within autotune.budget_s; returns the workload's scale.

    steps: over which a compilation has to pay. A candidate still without samples gets a reason.
    Must be called before torch has computed anything: threads do not survive the fork. Raises
    StageError for a recipe that does not fit the model.
    """
    budget = recipe["autotune.budget_s"]
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receiver)
        _child(sender, measurements, model_config, recipe)
    os.close(sender)
    with contextlib.suppress(OSError):  # the child does so too; whoever comes first
        os.setpgid(child, child)
    watcher = _Watcher(measurements, recipe["train.batch_size"], steps, budget, report)
    try:
        watcher.read(receiver)
    finally:
        os.close(receiver)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # compilers that it started die with it
        _, status = os.waitpid(child, 0)
    watcher.finish(status)
    return watcher.scale


class _Watcher:
    """The parent's side: keeps the books and the time."""

    def __init__(
        self,
        measurements: Sequence[Measurement],
        batch_size: int,
        steps: int,
        budget: float,
        report: Callable[..., None],
    ) -> None:
        self.measurements = measurements
        self.batch_size = batch_size
        self.steps = steps
        self.budget = budget
        self.report = report
        self.scale = 1.0
        self.began = time.monotonic()  # until the workload stands: then the budget begins
        self.deadline = self.began + LOADING_S
        self.loaded = False
        self.compiling: tuple[Measurement, float] | None = None
        self.stopped = ""

    def read(self, receiver: int) -> None:
        """Take the child's lines until it ends or its time is up."""
        pending = b""
        while True:
            left = self._limit() - time.monotonic()
            if left <= 0:
                self._stop()
                return
            ready, _, _ = select.select([receiver], [], [], min(left, 1.0))
            if not ready:
                continue
            data = os.read(receiver, 65536)
            if not data:
                return
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                self._take(json.loads(line))

    def _take(self, message: dict[str, Any]) -> None:
        if "scale" in message:
            self.scale = message["scale"]
            self.loaded = True
            self.began = time.monotonic()
            self.deadline = self.began + self.budget
            return
        if "refused" in message:
            text, where, hint = message["refused"]
            raise StageError(text, where=where, hint=hint)
        if "crash" in message:
            self.stopped = f"the probe failed: {message['crash']}"
            return
        found = self.measurements[message["index"]]
        if "reason" in message:
            found.reason = message["reason"]
            self.compiling = None
        elif "compiling" in message:
            self.compiling = found, time.monotonic()
        elif "compile_s" in message:
            found.compile_s = message["compile_s"]
            self.compiling = None
        else:
            found.samples.append(message["seconds"])
        self.report(
            step=sum(bool(m.samples) for m in self.measurements),
            of=len(self.measurements),
            eta_s=round(max(0.0, self.deadline - time.monotonic()), 1),
            note=found.candidate.name,
        )

    def _limit(self) -> float:
        """When to stop: the budget, or the moment from which compiling could no longer pay."""
        if not self.loaded:
            return self.deadline
        if self.compiling is None:
            if not any(m.samples for m in self.measurements):  # a slow machine needs a plan, too
                return self.began + PATIENCE * self.budget
            begun = (m for m in self.measurements if m.compile_s and m.reason is None)
            if any(len(m.samples) < LEAST_ROUNDS for m in begun):  # what has been compiled is measured, too
                return self.deadline + LAST_COMPILE * self.budget
            return self.deadline
        # one compilation is seen through to where it could no longer pay, even past the budget
        compiled = any(m.samples for m in self.measurements if m.candidate.compile != "none")
        deadline = self.deadline if compiled else self.deadline + LAST_COMPILE * self.budget
        return min(deadline, self.compiling[1] + self._whole_run())

    def _whole_run(self) -> float:
        plain = [step_seconds(m, self.batch_size, self.scale) for m in self.measurements if m.measured]
        return min(plain, default=float("inf")) * self.steps

    def _stop(self) -> None:
        what = f"the budget of {self.budget:g} s was" if self.loaded else f"{LOADING_S} s of loading were"
        self.stopped = f"{what} spent before"
        if self.compiling is None:
            return
        found, began = self.compiling
        spent = time.monotonic() - began
        if spent >= self._whole_run():
            found.reason = (
                f"compiling had not ended after {spent:.1f} s, as long as all {self.steps} steps take without"
            )
            self.stopped = f"{found.candidate.name} could not pay for its compiling, nor would this"
        else:
            found.reason = (
                f"compiling had not ended after {spent:.1f} s, at the end of {self.budget:g} s of budget; "
                f"all {self.steps} steps take {self._whole_run():.1f} s without"
            )

    def finish(self, status: int) -> None:
        """Give every candidate that was not measured its reason."""
        died = (
            f"the probe's process was ended by signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else ""
        )
        for m in self.measurements:
            if m.reason is None and not m.samples:
                m.reason = f"not measured: {self.stopped or died or 'no time was left for it'}"


def _child(
    sender: int,
    measurements: Sequence[Measurement],
    model_config: Mapping[str, Any],
    recipe: Mapping[str, Any],
) -> None:
    """Never returns."""
    code = 1
    try:
        with contextlib.suppress(OSError):
            os.setpgid(0, 0)

        def send(message: Mapping[str, Any]) -> None:
            os.write(sender, json.dumps(message).encode() + b"\n")

        try:
            _measure_all(send, measurements, model_config, recipe)
            code = 0
        except StageError as error:
            send({"refused": [error.message, error.where, error.hint]})
        except Exception as error:  # noqa: BLE001 - the parent says which candidates it cost
            import traceback

            traceback.print_exc()
            send({"crash": f"{type(error).__name__}: {first_line(error)}"})
    finally:
        os._exit(code)


def _measure_all(
    send: Send,
    measurements: Sequence[Measurement],
    model_config: Mapping[str, Any],
    recipe: Mapping[str, Any],
) -> None:
    from rules._probe.reference import Reference
    from rules._probe.workload import Workload

    todo = [(i, m.candidate) for i, m in enumerate(measurements) if m.reason is None]
    if not todo:
        return
    workload = Workload(model_config, recipe)
    if any(c.compile == "inductor" for _, c in todo):  # loaded on nobody's budget, as the rest is
        import torch._dynamo
        import torch._inductor.compile_fx  # noqa: F401
    send({"scale": workload.scale})
    began = time.monotonic()
    reference = Reference(workload, {c.micro_batch for _, c in todo})
    bench = _Bench(send, workload, reference)
    plain = [(i, c) for i, c in todo if c.compile == "none"]
    compiled = [(i, c) for i, c in todo if c.compile != "none"]
    budget = recipe["autotune.budget_s"] * (PLAIN_SHARE if compiled else 0.9)
    plain = [(i, c) for i, c in plain if bench.warm_up(i, c)]
    medians = bench.take_turns(plain, until=began + budget)
    by_speed = sorted(plain, key=lambda item: medians[item[0]] / item[1].micro_batch)
    rank = {(c.attention, c.micro_batch): n for n, (_, c) in enumerate(by_speed)}
    compiled.sort(key=lambda item: rank.get((item[1].attention, item[1].micro_batch), len(rank)))
    for i, candidate in compiled:
        if bench.warm_up(i, candidate):
            bench.take_turns([*by_speed[:1], (i, candidate)], until=began + recipe["autotune.budget_s"])
        bench.forget_compiled()


class _Bench:
    """The child's side: runs candidates on one model."""

    def __init__(self, send: Send, workload: Any, reference: Any) -> None:
        self.send = send
        self.workload = workload
        self.reference = reference
        self.batches: dict[int, Any] = {}
        self.compiled: list[tuple[Any, Any]] = []

    def warm_up(self, index: int, candidate: Candidate) -> bool:
        """Run once or twice and check the result; whether the candidate may be measured."""
        from rules._compile_watch import compile_layers, compiled_graphs

        try:
            graphs = 0
            if candidate.compile == "inductor":
                self.send({"index": index, "compiling": True})
                layers = compile_layers(self.workload.model)
                self.compiled = [(m, m._compiled_call_impl) for m in layers]
                graphs = compiled_graphs()
            began = time.perf_counter()
            loss = self._run(candidate)[0]
            first = time.perf_counter() - began
            reason = self.reference.why_wrong(self.workload.model, candidate.micro_batch, loss)
            second = self._run(candidate)[1]
            if candidate.compile == "inductor":
                if compiled_graphs() == graphs:
                    reason = "nothing was compiled"
                self.send({"index": index, "compile_s": max(0.0, first - second)})
        except Exception as error:  # noqa: BLE001 - whatever a candidate does is its own fault
            import traceback

            traceback.print_exc()
            reason = f"failed: {type(error).__name__}: {first_line(error)}"
        if reason is not None:
            self.send({"index": index, "reason": reason})
        return reason is None

    def take_turns(self, entries: Sequence[tuple[int, Candidate]], until: float) -> dict[int, float]:
        """Rounds in which each candidate runs once, in alternating order; returns medians."""
        from rules._probe.choose import median

        samples: dict[int, list[float]] = {i: [] for i, _ in entries}
        for number in range(ROUNDS if entries else 0):
            if number >= LEAST_ROUNDS and time.monotonic() > until:
                break
            for i, candidate in entries if number % 2 == 0 else reversed(entries):
                seconds = self._run(candidate)[1]
                samples[i].append(seconds)
                self.send({"index": i, "seconds": seconds})
        return {i: median(s) for i, s in samples.items()}

    def forget_compiled(self) -> None:
        """Back to the plain model, so that the next candidate compiles from nothing."""
        import torch

        for module, _ in self.compiled:
            module._compiled_call_impl = None
        self.compiled = []
        torch._dynamo.reset()

    def _run(self, candidate: Candidate) -> tuple[float, float]:
        """Loss and seconds of one step."""
        from rules._probe.workload import run_step

        used = self.workload.select(candidate.attention)
        if used != candidate.attention:
            raise RuntimeError(f"the model uses attention '{used}' instead")
        for module, call in self.compiled:
            module._compiled_call_impl = call if candidate.compile == "inductor" else None
        batch = self.batches.setdefault(candidate.micro_batch, self.workload.batch(candidate.micro_batch))
        began = time.perf_counter()
        loss = run_step(self.workload.model, batch)
        return loss, time.perf_counter() - began
