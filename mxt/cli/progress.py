"""How a running build looks: live lines in a terminal; in a pipe or a CI log only what matters.

What matters: failures, the first few actions that ran, of the others those that took long, a sign of
life from what runs long, and every so often how far it all is. --verbose shows all, and why.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mxt.cli.facts import action_line, facts, first_figure, printable, short_change
from mxt.cli.screen import Screen, bars_of
from mxt.cli.terminal import paint, warning
from mxt.words import duration

__all__ = ["Progress", "live_wanted", "short_change"]

FEW = 20  # so many actions are shown one by one, and after them
LONG_S = 10.0  # only those that took so long
FIRST_S = 0.15  # nothing is drawn before: a build that is over by then leaves no trace of drawing
FRAME_S = 0.1
SILENT_S = 10.0  # a log gets a line at least so often at first, rarer as time goes on
SILENT_MOST_S = 300.0
ROWS = 12


@dataclass
class Running:
    """An action that runs now, and the last thing it reported. told: when the log last heard of it."""

    name: str
    key: str
    began: float
    told: float
    report: dict[str, Any] = field(default_factory=dict)


class Progress:
    """Listens to the events of a build and shows them on standard error. total: actions of the build."""

    def __init__(self, total: int, *, verbose: bool = False) -> None:
        self._total = total
        self._verbose = verbose
        self._shown = 0
        self._counts = dict.fromkeys(("executed", "cached", "failed"), 0)
        self._done = 0
        self._waiting = 0
        self._running: dict[str, Running] = {}
        self._began = self._told = time.monotonic()
        self._drawn = 0.0
        self._lasting: list[str] = []
        self._screen = Screen(sys.stderr) if live_wanted() else None
        self._bars = bars_of(sys.stderr)
        self._open = False

    # ---- events -------------------------------------------------------------------------------

    def __call__(self, event: str, fields: dict[str, Any]) -> None:
        handler = getattr(self, f"_on_{event}", None)
        if handler is not None:
            name = fields.get("label", "")
            if fields.get("action"):
                name += f"[{fields['action']}]"
            handler(name, fields)

    def _on_action_started(self, name: str, fields: Mapping[str, Any]) -> None:
        now = time.monotonic()
        self._running[name] = Running(name, fields["key"], now, now)
        resumed = fields.get("resumed")
        if self._verbose:
            verb = "resuming" if resumed else "running"
            self._say(f"  {verb} {printable(name)}{_because(fields['reason'])}")
        elif resumed:
            self._say(f"  resuming {printable(name)} from its last checkpoint")

    def _on_action_progress(self, name: str, fields: Mapping[str, Any]) -> None:
        running = self._running.get(name)
        if running is None:
            return
        for passing in ("note", "stage"):  # what it said it was doing is over once it says something else
            if passing not in fields:
                running.report.pop(passing, None)
        running.report.update((k, v) for k, v in fields.items() if k not in ("label", "action", "key"))

    def _on_action_waiting(self, name: str, fields: Mapping[str, Any]) -> None:
        if any(running.key == fields["key"] for running in self._running.values()):
            return  # two targets of this build do the same: one result serves both
        self._waiting += 1
        if self._verbose or self._waiting <= 3:
            self._say(f"  waiting for another build that runs {printable(name)}")
        elif self._waiting == 4:
            self._say("  waiting for another build that runs more of them")

    def _on_action_finished(self, name: str, fields: Mapping[str, Any]) -> None:
        running = self._running.pop(name, None)
        status, wall_s = fields["status"], fields["wall_s"]
        self._done += 1
        self._counts[status] = self._counts.get(status, 0) + 1
        if status == "executed":
            report = running.report if running else {}
            if self._worth_a_line(wall_s, report):
                last = facts(first_figure(report))
                said = [printable(name), duration(wall_s), last, printable(str(report.get("summary", "")))]
                self._say(f"  {paint('ok', 'green', sys.stderr)} {'  '.join(t for t in said if t)}")
        elif status == "failed":
            self._say(f"  {paint('failed', 'red', sys.stderr)} {printable(name)}  {duration(wall_s)}")
        elif self._verbose:
            self._say(f"  {paint(status, 'dim', sys.stderr)} {printable(name)}")
        if self._screen is not None:
            self.tick()  # a long row of results that are found runs nothing, and shall be seen

    def _worth_a_line(self, wall_s: float, report: Mapping[str, Any]) -> bool:
        if self._verbose or wall_s >= LONG_S or "summary" in report:
            return True
        self._shown += 1
        if self._shown == FEW + 1:
            self._say(f"  from here on only what takes {LONG_S:.0f} s or more; -v shows all")
        return self._shown <= FEW

    def _on_note(self, _: str, fields: Mapping[str, Any]) -> None:
        self._say(f"  {printable(fields['text'])}")

    def _on_build_interrupted(self, _: str, __: Mapping[str, Any]) -> None:
        self._say("  stopping; press Ctrl-C again to kill at once")
        self.draw()

    def _on_build_finished(self, _: str, __: Mapping[str, Any]) -> None:
        self.close()

    # ---- drawing --------------------------------------------------------------------------------

    def warn(self, text: str) -> None:
        """A warning above the live lines."""
        self._say(warning(text))

    def _say(self, line: str) -> None:
        self._told = time.monotonic()
        if self._open:
            self._lasting.append(line)  # the next frame draws it
        else:
            print(line, file=sys.stderr, flush=True)

    def tick(self) -> None:
        """Draw what changed; called as often as anything happens, and costs nothing in between."""
        now = time.monotonic()
        if self._screen is None:
            if now - self._told >= SILENT_S:
                self._sign_of_life(now)
        elif now - self._drawn >= FRAME_S and now - self._began >= FIRST_S:
            self.draw()

    def draw(self) -> None:
        """One frame, now."""
        if self._screen is None or self._done == self._total:
            return
        self._open, self._drawn = True, time.monotonic()
        columns, lines = self._screen.size()
        self._screen.draw(self._lasting, self._picture(columns - 1, max(1, min(ROWS, lines - 3))))
        self._lasting.clear()

    def _picture(self, columns: int, rows: int) -> list[str]:
        now = time.monotonic()
        lines = []
        # the longest running first, as they were started
        for number, running in enumerate(self._running.values()):
            if number == rows - 1 and len(self._running) > rows:
                lines.append(f"  and {len(self._running) - number} more")
                break
            elapsed_s = now - running.began
            lines.append(action_line(running.name, running.report, elapsed_s, columns, self._bars))
        lines.append(self._state(now, columns))
        return lines

    def _state(self, now: float, columns: int) -> str:
        """How far it all is: "  3 of 9 actions, 2 cached, 12.1 s", less of it where there is little room."""
        counts = [f"{self._counts[s]} {s}" for s in ("cached", "failed") if self._counts[s]]
        time_taken = duration(now - self._began)
        head, noun = f"  {self._done} of {self._total}", "action" if self._total == 1 else "actions"
        texts = [
            ", ".join([f"{head} {noun}", *counts, time_taken]),
            ", ".join([head, *counts]),
            head,
        ]
        return next((text for text in texts if len(text) <= columns), head)

    def _sign_of_life(self, now: float) -> None:
        """For logs: what has run long, each the more rarely the longer it runs, and how far it all is."""
        if now - self._told < _interval(now - self._began):
            return
        due = [r for r in self._running.values() if now - r.told >= _interval(now - r.began)]
        for running in due[:4]:
            running.told = now
            report = facts(running.report)
            self._say(
                f"  running {printable(running.name)} for {duration(now - running.began)}"
                f"{': ' + report if report else ''}"
            )
        if self._total > 1 and (len(self._running) > 1 or not due):
            running_now = f"{len(self._running)} running, " if self._running else ""
            state = self._state(now, 1000)
            self._say(f"{state.rpartition(', ')[0]}, {running_now}{duration(now - self._began)}")
        self._told = now

    def close(self) -> None:
        """Take the live lines away; what lasts stays."""
        if self._open and self._screen is not None:
            self._screen.draw(self._lasting, [])
            self._lasting.clear()
            self._open = False
            self._drawn = float("inf")


def live_wanted() -> bool:
    """Whether standard error is a terminal that draws: none in a pipe, in CI, or where TERM says dumb."""
    ci = os.environ.get("CI", "").lower() not in ("", "0", "false", "no")
    return sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb" and not ci


def _interval(elapsed_s: float) -> float:
    """How long a log may be silent about what has gone on for that long: a third of it, within bounds."""
    return min(SILENT_MOST_S, max(SILENT_S, elapsed_s / 3))


def _because(reason: list[dict[str, str]]) -> str:
    if not reason:
        return ""
    more = f" and {len(reason) - 1} more" if len(reason) > 1 else ""
    return f"  ({printable(short_change(reason[0]))}{more})"
